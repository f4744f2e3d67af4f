"""Two or three CPU processes of one gloo world, and what they do in the tests of groups over processes."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass

import torch
import torch.distributed as dist

from rl_reward import Verifier
from rl_reward.adapters.trl import ProgressReward, VerifierReward, agreement
from rl_reward.adapters.trl.agreement import agreed
from rl_reward.adapters.trl.processes import judged_together, processes
from rl_reward.backends import Simulated
from rl_reward.errors import BackendError, ConfigError

# A server that has imported the heavy packages once and forks: each spawned rank would import them anew, for seconds.
context = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class Ended:
    """How one rank ended."""

    value: object = None
    error: type | None = None
    message: str = ""
    exitcode: int | None = None
    """Of a rank that died before it could tell anything."""


def on_ranks(size, work, *args):
    """Run `work(rank, *args)` on `size` ranks of one world; return how each ended, in rank order."""
    context.set_forkserver_preload(["torch.distributed", "datasets", "trl.trainer.grpo_trainer"])
    ranks = []
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for rank in range(size):
        ours, theirs = context.Pipe()
        process = context.Process(target=_rank, args=(rank, size, port, theirs, work, args), daemon=True)
        process.start()
        theirs.close()
        ranks.append((process, ours))
    ends = [_end_of(process, pipe) for process, pipe in ranks]
    for process, pipe in ranks:
        pipe.close()
        process.kill()  # a rank that found the others gone has gloo threads that still wait
    return ends


def _rank(rank, size, port, pipe, work, args):
    where = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({key: str(value) for key, value in where.items()})
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        pipe.send(Ended(work(rank, *args)))
    except Exception as error:
        pipe.send(Ended(error=type(error), message=str(error)))
    pipe.poll(60)  # rank 0 holds the store of the world; it stays until all have ended


def _end_of(process, pipe):
    try:
        return pipe.recv()
    except EOFError:
        process.join(10)
        return Ended(exitcode=process.exitcode)


# ---------------------------------------------------------------------------------------------- what a rank can do


def judge_on(rank):
    """A judge whose verdict on a row is the row, its place, its whole group and the rank that judged it."""

    async def judge(groups):
        return [[(row, place, list(group), rank) for place, row in enumerate(group)] for group in groups]

    return judge


def judges(rank, rows_by_rank, group_size):
    return asyncio.run(judged_together(rows_by_rank[rank], group_size, judge_on(rank), processes(timeout_s=20)))


def judges_twice(rank, rows_by_rank, sizes):
    """Training and evaluation of one reward: other group sizes, the same processes."""
    first, second = processes("a", timeout_s=20), processes("a", timeout_s=20)
    both = [judged_together(rows_by_rank[rank], size, judge_on(rank), first) for size in sizes]
    return first is second, [asyncio.run(one) for one in both]


class Locked(Exception):
    """Does not pickle."""

    def __init__(self):
        super().__init__("two\nlines")
        self.lock = threading.Lock()


FAULTS = {
    "backend": BackendError("no such model: m"),
    "config": ConfigError("criteria must be named"),
    "other": KeyError("gold"),
    "unpicklable": Locked(),
}


def fails(rank, fault, culprits, timeout_s=20):
    """The judge of each culprit fails or hangs."""

    async def judge(groups):
        if rank in culprits:
            if fault == "hangs":
                await asyncio.sleep(60)
            if fault == "blocks":
                time.sleep(2 * timeout_s)
            if fault == "dies":
                os._exit(3)
            if fault == "short":
                return [group[1:] for group in groups]
            raise FAULTS[fault]
        await asyncio.sleep(0.3 * rank)  # the others end at different times, the last one well after the failure
        return groups

    return asyncio.run(judged_together([rank] * 2, 2, judge, processes(timeout_s=timeout_s)))


def each(rank, work, cases):
    """What `work` raises in each case, one after another in the same world."""
    told = []
    for case in cases:
        try:
            told.append(work(rank, *case))
        except (BackendError, ConfigError) as error:
            told.append((type(error), str(error)))
    return told


def dies_before_the_first_call(rank):
    if rank == 1:
        os._exit(3)
    return asyncio.run(judged_together([rank] * 2, 2, judge_on(rank), processes(timeout_s=2)))


def has_bad_rows(rank, fault):
    """One process has rows that the others cannot know are bad."""

    def rows():
        if fault == "column" and rank == 1:
            raise ConfigError("reference column 'gold' is not in the dataset")
        return [threading.Lock() if fault == "unpicklable" and rank == 1 else "row"] * 2

    size = {"sizes": 2 - rank, "none": 2 - 2 * rank, "odd": 3}.get(fault, 2)
    if fault == "large":
        agreement.MAX_BYTES = 8 if rank == 1 else agreement.MAX_BYTES
    return asyncio.run(judged_together(rows, size, judge_on(rank), processes(timeout_s=20)))


def agrees(rank):
    """What TRL's own collective comes to after a check that fails on one process only."""

    async def check():
        if rank == 1:
            raise BackendError("9 of the last 12 rows are unscored")

    told = []
    for work in (asyncio.sleep(0, rank * 10), check()):
        try:
            told.append(asyncio.run(agreed(work, processes(timeout_s=20))))
        except BackendError as error:
            told.append(str(error))
    everyone = [torch.zeros(1, dtype=torch.int64) for _ in range(2)]
    dist.all_gather(everyone, torch.tensor([rank]))
    return told, [int(one) for one in everyone]


def runs_two_rewards(rank, names):
    """As TRL does: both awaited together. Each process is slow in another one, so they end in another order."""

    async def reward(number, name):
        procs = processes(name, timeout_s=20)

        async def judge(groups):
            await asyncio.sleep(0.4 if (rank + number) % 2 else 0.0)
            return [[f"{number}: {row}" for row in group] for group in groups]

        rows = [f"{rank}{place}" for place in range(3)]
        return [await judged_together(rows, 2, judge, procs) for _ in range(2)]

    async def together():
        return await asyncio.gather(*(reward(number, name) for number, name in enumerate(names)))

    return asyncio.run(together())


def letters(request):
    return sum(map(ord, request.text)) % 11 / 10


def digits(request):
    return sum(letter.isdigit() for letter in request.text) / 8


def rewards_for(group_size, eval_group_size=None):
    """Two verifiers in one trainer; gates are off, as a batch judged without its trainer knows of no token limit."""
    sizes = {"group_size": group_size, "eval_group_size": eval_group_size}
    return [
        VerifierReward(Verifier(Simulated(truth)), weight=weight, timeout_s=60, name=truth.__name__, **sizes)
        for truth, weight in ((letters, 1.0), (digits, 0.5))
    ]


def trains(rank, folder):
    """Two steps and an evaluation of GRPO; returns what each call of a reward saw and gave, and all advantages."""
    from test_trl import trainer_with

    calls = []

    def recorded(reward):
        async def call(prompts, completions, **told):
            given = await reward(prompts, completions, **told)
            training = told["log_metric"].__self__.model.training
            calls.append((reward.__name__, training, prompts, completions, given))
            return given

        call.__name__ = reward.__name__
        return call

    # Three groups of 2 over two batches of 3; in evaluation 15 rows, which accelerate fills up to 18.
    trainer = trainer_with(
        f"{folder}/{rank}",
        *map(recorded, rewards_for(2, 3)),
        prompts=("1+1=", "1+2=", "1+1=", "2+2=", "3+4="),
        evaluate=True,
        per_device_train_batch_size=3, num_generations=2, max_steps=2, max_completion_length=8, scale_rewards="none",
        per_device_eval_batch_size=3, num_generations_eval=3, eval_strategy="steps", eval_steps=2,
    )  # fmt: skip
    trainer.train()
    calls.sort(key=lambda call: call[0])  # which of two rewards answers first differs between processes
    return calls, trainer.seen, trainer.accelerator.num_processes


def credits(rank, folder):
    """One step of GRPO whose only signal is step credit; returns each row's curve, first tokens and advantages."""
    from trl_toys import trainer_with

    from rl_reward.adapters.trl.step_credit import StepCreditConfig, StepCreditGRPOTrainer

    class Credited(StepCreditGRPOTrainer):
        def _generate_and_score_completions(self, inputs):
            output = super()._generate_and_score_completions(inputs)
            self.advantages = output["advantages"].tolist()
            return output

    class Kept(ProgressReward):
        def take_latest(self):
            self.taken = super().take_latest()
            return self.taken

    reward = Kept(Verifier(Simulated(letters)), steps=two_at_a_time, group_size=2, timeout_s=60, name="progress")
    trainer = trainer_with(
        f"{folder}/{rank}",
        reward,
        prompts=("1+1=", "1+2=", "2+2="),
        kind=Credited, host={"step_credit": StepCreditConfig(0.5, sigma_floor=1e-6)},
        per_device_train_batch_size=3, num_generations=2, max_completion_length=6,
    )  # fmt: skip
    trainer.train()
    return [
        (row.curve.tolist(), [step.start for step in steps], paid)
        for row, steps, paid in zip(reward.taken.judged, reward.taken.steps, trainer.advantages, strict=True)
    ]


def two_at_a_time(text):
    return [(start, min(start + 2, len(text))) for start in range(0, len(text), 2)]


def judged_where(ends):
    """How many groups each rank judged, from verdicts of `judge_on`."""
    groups = {tuple(group): rank for end in ends for _, _, group, rank in end.value}
    return sorted(Counter(groups.values()).items())
