"""Arguments, commands, and exit codes: 0 done, 1 it cannot be served or nothing was scored, 2 wrong input.

As with other programs, 130 is Ctrl-C and 141 a reader that went away.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, get_args

import rl_reward.cli.doctor as doctor
import rl_reward.cli.fetch_model as fetch_model
import rl_reward.cli.inputs as inputs
import rl_reward.cli.output as output
import rl_reward.cli.tables as tables
from rl_reward.backends.base import Backend, Request
from rl_reward.backends.simulated import Simulated
from rl_reward.backends.spec import FORMS, is_model, model_backend
from rl_reward.cli.bar import counted
from rl_reward.cli.json_values import Json
from rl_reward.errors import ConfigError, RlRewardError
from rl_reward.scale import ScoreScale
from rl_reward.strengths import check_installed
from rl_reward.tournament import Method
from rl_reward.types import Usage
from rl_reward.verifier import Verifier


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {tables.one_line(message)}; see {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    # A terminal of another encoding, or a notebook, whose output has nothing to set.
    if reconfigure := getattr(sys.stdout, "reconfigure", None):
        reconfigure(errors="backslashreplace")
    options = _parser().parse_args(arguments)
    try:
        code: int = options.command(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Python flushes once more at exit, and would complain there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print("rl-reward: the reader of the output went away", file=sys.stderr)
        return 141
    except (RlRewardError, OSError) as error:
        print(f"rl-reward: error: {tables.one_line(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("rl-reward: stopped", file=sys.stderr)
        return 130


def backend_of(spec: str, base_url: str | None = None) -> Backend:
    """Return the backend of "openai:MODEL", "local:FOLDER" or "simulated"."""
    if base_url is not None and not spec.startswith("openai:"):
        raise ConfigError(f"--base-url belongs to openai:MODEL, got --backend {spec!r}")
    if spec == "simulated":
        return Simulated(_quality_of_text)
    if not is_model(spec):
        raise ConfigError(f"--backend must be {FORMS} or simulated, got {spec!r}")
    return model_backend(spec, base_url=base_url)


def _quality_of_text(request: Request) -> float:
    """Return a made-up quality, the same for the same text: to see the formats, not to judge."""
    return int(hashlib.sha256(request.text.encode("utf-8", "surrogatepass")).hexdigest()[:8], 16) / 0xFFFFFFFF


def _compare(options: argparse.Namespace) -> int:
    from rl_reward.experiments.compare import compare

    return compare(options.config, out=options.out, jobs=options.jobs, seeds=options.seeds, fresh=options.fresh)


def _probe(options: argparse.Namespace) -> int:
    from rl_reward._loop import run
    from rl_reward.cli.probe import findings

    backend = backend_of(options.backend, options.base_url)
    try:
        print(f"judge          {tables.one_line(backend.name)}")
        found = run(findings(backend))
    except (RlRewardError, TimeoutError) as error:
        print(f"cannot serve: {tables.one_line(str(error))}", file=sys.stderr)
        return 1
    print(found.table)
    return 0 if found.serves else 1


def _score(options: argparse.Namespace) -> int:
    pairs = _pairs(options)
    _check_out(options)
    verifier = _verifier(options)
    scores = verifier.score_many(pairs)
    lines: list[str] = []
    for number, ((_, candidate), score) in enumerate(zip(pairs, scores, strict=True), start=1):
        lines += [f"[{number}] {tables.one_line(candidate)[:70]}"] if len(pairs) > 1 else []
        lines.append(tables.score_table(score))
    lines.append(tables.usage_line(sum((score.usage for score in scores), Usage()), verifier.name))
    records = [tables.score_record(*pair, score) for pair, score in zip(pairs, scores, strict=True)]
    _deliver("\n".join(lines), options, {"judge": verifier.name, "scores": records})
    return 0 if any(score.value is not None for score in scores) else 1


def _pairs(options: argparse.Namespace) -> list[tuple[str, str]]:
    told = (options.task, options.task_file, options.candidate, options.candidate_file)
    if options.jsonl is not None:
        if told.count(None) < len(told):
            raise ConfigError("give --jsonl or a task and a candidate, not both")
        return inputs.read_pairs(options.jsonl)
    return [(_told("task", *told[:2]), _told("candidate", *told[2:]))]


def _told(name: str, text: str | None, file: str | None) -> str:
    """Return the text given as an argument or in a file."""
    if (text is None) == (file is None):
        form = "TASK and CANDIDATE, --task-file and --candidate-file, or --jsonl FILE"
        raise ConfigError(f"give {form}; the {name} is {'missing' if text is None else 'given twice'}")
    found = inputs.read_text(file) if file is not None else text
    return Json(found, f"the {name}").filled()


def _track(options: argparse.Namespace) -> int:
    episode = inputs.read_episode(options.file, options.task)
    _check_out(options)
    verifier = _verifier(options)
    curve = verifier.track(episode.task, episode.steps, every=options.every)
    table = tables.curve_table(curve, [step.text for step in episode.steps])
    text = f"{table}\n{tables.usage_line(curve.usage, verifier.name)}"
    _deliver(text, options, {"judge": verifier.name, **tables.curve_record(episode.task, curve)})
    return 0 if curve.scored.any() else 1


def _rank(options: argparse.Namespace) -> int:
    contests = _contests(options)
    _check_out(options)
    if options.strengths:
        check_installed()
    backend, method, pivots = backend_of(options.backend, options.base_url), options.method, options.pivots
    pools = [contest.references for contest in contests] if method == "anchored" else None
    calls = _told_budget(_verifier(options, backend), contests, method, pivots)
    with counted(backend, calls) as shown:
        verifier = _verifier(options, shown)
        groups = [(contest.task, contest.candidates) for contest in contests]
        rankings = verifier.rank_many(groups, pivots=pivots, method=method, references=pools)
    lines: list[str] = []
    records: list[dict[str, Any]] = []
    for contest, ranking in zip(contests, rankings, strict=True):
        lines += [f"task {tables.one_line(contest.task)[:70]}"] if len(contests) > 1 else []
        lines.append(tables.ranking_table(ranking, contest.candidates, strengths=options.strengths))
        records.append(tables.ranking_record(contest.task, contest.candidates, ranking, strengths=options.strengths))
    lines.append(tables.usage_line(sum((ranking.usage for ranking in rankings), Usage()), verifier.name))
    _deliver("\n".join(lines), options, {"judge": verifier.name, "method": method, "rankings": records})
    return 0 if any(rank for ranking in rankings for rank in ranking.ranks) else 1


def _told_budget(verifier: Verifier, contests: Sequence[inputs.Contest], method: Method, pivots: int) -> int:
    """Say what will be asked, before it is, and return the number of calls."""
    budgets = [
        verifier.call_budget(len(contest.candidates), method=method, pivots=pivots, references=len(contest.references))
        for contest in contests
    ]
    calls = sum(budget.calls for budget in budgets)
    comparisons = sum(budget.comparisons for budget in budgets)
    print(
        f"{comparisons} comparisons, at most {calls} calls; retries and a server's first probe come on top",
        file=sys.stderr,
    )
    return calls


def _contests(options: argparse.Namespace) -> list[inputs.Contest]:
    told = options.task is not None or bool(options.reference)
    if told is (options.jsonl is not None):
        raise ConfigError(f"give TASK and CANDIDATES, or --jsonl FILE; got {'both' if told else 'neither'}")
    if options.jsonl is not None:
        return inputs.read_contests(options.jsonl)
    named = {"task": [options.task or ""], "candidate": options.candidates, "reference": options.reference}
    task, candidates, references = (
        tuple(Json(text, f"a {name}" if name != "task" else "the task").filled() for text in texts)
        for name, texts in named.items()
    )
    return [inputs.Contest(task[0], candidates, references)]


def _check_out(options: argparse.Namespace) -> None:
    """Refuse an --out that cannot be written, before anything is paid for."""
    if options.out is not None:
        output.check(options.out)


def _deliver(text: str, options: argparse.Namespace, record: dict[str, Any]) -> None:
    """Print, and write the file even where nobody reads what is printed: both are paid for."""
    try:
        print(text, flush=True)
    finally:
        if options.out is not None:
            output.write_json(options.out, record)


def _verifier(options: argparse.Namespace, backend: Backend | None = None) -> Verifier:
    return Verifier(
        backend or backend_of(options.backend, options.base_url),
        criteria=options.criteria,
        scale=ScoreScale.digits() if options.digits else ScoreScale.letters(options.granularity),
        repeats=options.repeats,
        analysis=options.analysis,
        min_coverage=options.min_coverage,
        max_concurrency=options.max_concurrency,
        deadline=options.deadline,
        seed=options.seed,
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="rl-reward", description="Dense RL rewards from a language-model verifier.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)

    compare = commands.add_parser("compare", help="train with sparse and dense rewards and draw the curves")
    compare.add_argument("config", help="YAML file, e.g. configs/quickstart.yaml")
    compare.add_argument("--out", help="folder of runs and results; default runs/<config>")
    compare.add_argument("--jobs", type=int, help="runs at the same time; default: the number of cores")
    compare.add_argument("--seeds", type=_seeds, help="only these seeds, e.g. 0,1,2")
    compare.add_argument("--fresh", action="store_true", help="throw earlier runs of this configuration away")
    compare.set_defaults(command=_compare)

    probe = commands.add_parser("probe", help="ask what a model or server can do")
    _add_backend(probe)
    probe.set_defaults(command=_probe)

    score = commands.add_parser("score", help="score candidates")
    score.add_argument("task", nargs="?")
    score.add_argument("candidate", nargs="?")
    score.add_argument("--task-file")
    score.add_argument("--candidate-file")
    score.add_argument("--jsonl", help='file with {"task": ..., "candidate": ...} in every line')
    _add_judge(score)
    score.set_defaults(command=_score)

    rank = commands.add_parser("rank", help="rank candidates by a tournament of comparisons")
    rank.add_argument("task", nargs="?")
    rank.add_argument("candidates", nargs="*")
    rank.add_argument("--jsonl", help='file with {"task": ..., "candidates": [...]} in every line')
    rank.add_argument("--pivots", type=int, default=2, help="best of the first round whom all meet; default 2")
    rank.add_argument("--method", choices=get_args(Method), default="pivots", help="who meets whom; default pivots")
    rank.add_argument("--reference", action="append", default=[], help="for anchored; in JSONL the key references")
    rank.add_argument("--strengths", action="store_true", help="Bradley-Terry strengths too; needs rl-reward[rank]")
    _add_judge(rank)
    rank.set_defaults(command=_rank)

    track = commands.add_parser("track", help="causal progress of one episode")
    track.add_argument("file", help='JSON: a list of steps, {"task", "steps"}, or an ATIF trajectory')
    track.add_argument("--task", help="the task, where the file does not say it")
    track.add_argument("--every", type=int, default=1, help="ask after every N-th step, the first and the last")
    _add_judge(track)
    track.set_defaults(command=_track)

    doctor.add_arguments(commands.add_parser("doctor", help="check an environment or a config before training"))
    fetch_model.add_arguments(commands.add_parser("fetch-model", help="download a small model once, into the cache"))
    return parser


def _add_backend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--backend", required=True, help="openai:MODEL, local:FOLDER or simulated")
    parser.add_argument("--base-url", help="of an OpenAI-compatible server, e.g. http://127.0.0.1:8000/v1")


def _add_judge(parser: argparse.ArgumentParser) -> None:
    _add_backend(parser)
    parser.add_argument("--criteria", help="math, agent, manipulation, or a .toml or .md file")
    scale = parser.add_mutually_exclusive_group()
    scale.add_argument("--granularity", type=int, default=20, help="letters of the scale, 2 to 26; default 20")
    scale.add_argument("--digits", action="store_true", help="use the digits 0 to 9 as the scale")
    parser.add_argument("--repeats", type=int, default=1, help="how often each criterion is asked; default 1")
    parser.add_argument(
        "--analysis", choices=("none", "sampled"), default="none", help="what is written before the verdict"
    )
    parser.add_argument(
        "--min-coverage", type=float, default=0.05, help="probability that must be on the scale; default 0.05"
    )
    parser.add_argument("--max-concurrency", type=int, default=50, help="requests in flight at once; default 50")
    parser.add_argument("--seed", type=int, default=0, help="seed of what is drawn; default 0")
    parser.add_argument("--deadline", type=float, help="seconds for one request; default: 60 over HTTP")
    parser.add_argument("--out", help="write everything as JSON to this file")


def _seeds(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(seed) for seed in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"seeds must look like 0,1,2, got {text!r}") from error
