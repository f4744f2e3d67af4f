"""A small flow-matching policy over action chunks: trained on demonstrations, then frozen.

pairs = chunked(obs_T, actions_T, chunk=10)
policy = fit(pairs.obs_N, pairs.chunks_N, steps=5000)
actions = policy.act(obs, policy.draw(np.random.default_rng(0)))
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rl_reward._checks import check_int, check_number
from rl_reward.errors import ConfigError, MissingExtraError

try:
    import torch
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import save_file  # pyright: ignore[reportUnknownVariableType]
    from torch import Tensor, nn
except ImportError as error:
    raise MissingExtraError("torch or safetensors", "steering") from error

Noise = Literal["shared", "independent"]

FORMAT = "rl_reward.flow.1"
"""Where the metadata of a saved policy holds its settings; the number changes with the network."""

_WAVES = 8  # time enters as t and as sine and cosine of 1 to 8 half turns
_FARTHEST = 10.0  # steering reaches states no demonstration saw; beyond this many deviations they all look alike


@dataclass(frozen=True)
class FlowSettings:
    """The sizes of a flow policy."""

    obs_dim: int
    """Numbers in an observation, >= 1."""
    action_dim: int
    """Numbers in an action, >= 1."""
    chunk: int
    """Actions in a chunk, >= 1."""
    noise: Noise = "shared"
    """One noise vector repeated over the chunk (shared), or one for each of its actions (independent)."""
    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers."""
    euler_steps: int = 10
    """Steps from noise to actions, >= 1."""

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        for name in ("obs_dim", "action_dim", "chunk", "euler_steps"):
            check_int(name, getattr(self, name), least=1)
        if self.noise not in get_args(Noise):
            raise ConfigError(f"noise must be one of {', '.join(get_args(Noise))}, got {self.noise!r}")
        object.__setattr__(self, "hidden", tuple(check_int("a hidden width", width, least=1) for width in self.hidden))
        if not self.hidden:
            raise ConfigError("hidden must hold at least 1 width, got none")


class Pairs(NamedTuple):
    """Training pairs of a flow policy."""

    obs_N: NDArray[np.float32]
    """Observations, float32 [N, D]."""
    chunks_N: NDArray[np.float32]
    """The actions from there on, float32 [N, chunk, action_dim]."""


def chunked(obs_T: ArrayLike, actions_T: ArrayLike, chunk: int) -> Pairs:
    """Return one pair for each step of an episode: what was seen, and the `chunk` actions that began there.

    Past the end the last action is repeated, so a chunk that begins near the end holds still in its own way.

    Args:
        obs_T: Observations before each action, float [T, D].
        actions_T: Actions, float [T, action_dim].
        chunk: Actions in a chunk, >= 1.

    Raises:
        ConfigError: The lengths differ, or the episode is empty.
    """
    check_int("chunk", chunk, least=1)
    obs, actions = np.asarray(obs_T, dtype=np.float32), np.asarray(actions_T, dtype=np.float32)
    if obs.ndim != 2 or actions.ndim != 2 or len(obs) != len(actions) or not len(obs):
        raise ConfigError(
            f"an episode needs observations [T, D] and actions [T, dim], got {obs.shape}, {actions.shape}"
        )
    index_TC = np.minimum(np.arange(len(obs))[:, None] + np.arange(chunk), len(obs) - 1)
    return Pairs(obs, actions[index_TC])


class FlowPolicy:
    """A frozen conditional flow: noise x_0 follows dx/dt = v(x, t, obs) from t = 0 to 1 and is then the actions.

    v is a multilayer perceptron trained by flow matching (Lipman et al. 2023) along straight lines; the integration
    takes `euler_steps` Euler steps. It implements `FrozenPolicy`.
    """

    def __init__(self, settings: FlowSettings, field: VelocityField) -> None:
        """Freeze `field`; use `fit` or `FlowPolicy.load` to get one."""
        self.settings = settings
        """The sizes."""
        self._field = field.requires_grad_(False).eval()
        grid = range(settings.euler_steps)
        self._times = [_time_features(torch.full((1, 1), step / len(grid))) for step in grid]

    @property
    def chunk(self) -> int:
        """Actions one call returns."""
        return self.settings.chunk

    @property
    def action_dim(self) -> int:
        """Numbers in one action."""
        return self.settings.action_dim

    @property
    def obs_dim(self) -> int:
        """Numbers in an observation."""
        return self.settings.obs_dim

    @property
    def noise_shape(self) -> tuple[int, ...]:
        """Shape of the noise: (action_dim,) where it is shared, else (chunk, action_dim)."""
        return (self.action_dim,) if self.settings.noise == "shared" else (self.chunk, self.action_dim)

    def draw(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """Return noise from N(0, I), what the policy was trained on."""
        return rng.standard_normal(self.noise_shape, dtype=np.float32)

    @torch.inference_mode()
    def act(self, obs: ArrayLike, noise: ArrayLike) -> NDArray[np.float32]:
        """Return the actions, float32 [chunk, action_dim], clipped to [-1, 1].

        Args:
            obs: One observation, float [D].
            noise: Noise of `noise_shape`.

        Raises:
            ConfigError: A shape does not fit.
        """
        seen = _tensor("the observation", obs, (self.obs_dim,))
        x = _tensor("the noise", noise, self.noise_shape)
        if self.settings.noise == "shared":
            x = x.expand(self.chunk, -1)
        x, seen = x.reshape(1, -1), self._field.normalised(seen[None])
        for time in self._times:
            x = x + self._field(x, seen, time) / len(self._times)
        return x.clamp(-1.0, 1.0).reshape(self.chunk, self.action_dim).numpy()

    def save(self, path: str | Path) -> None:
        """Write the policy to one .safetensors file, its settings as JSON in the metadata."""
        # One entry only: their order is random, and equal policies should be equal files.
        save_file(self._field.state_dict(), str(path), {FORMAT: json.dumps(asdict(self.settings))})

    @classmethod
    def load(cls, path: str | Path) -> FlowPolicy:
        """Read a policy that `save` wrote.

        Raises:
            ConfigError: The file is missing, damaged, or holds something else.
        """
        metadata, tensors = _read(path)
        if FORMAT not in metadata:
            raise ConfigError(f"{path} is no flow policy: its metadata holds no {FORMAT!r}")
        try:
            settings = FlowSettings(**json.loads(metadata[FORMAT]))
            with torch.random.fork_rng(devices=[]):  # pyright: ignore[reportUnknownMemberType]
                field = VelocityField(settings)  # its first weights are thrown away, and no draw may show of it
            field.load_state_dict(tensors)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ConfigError(f"the flow policy in {path} is damaged: {' '.join(str(error).split())}") from error
        return cls(settings, field)


class VelocityField(nn.Module):
    """The velocity v(x, t, obs) of a flat chunk, with the normalisation of the observations."""

    mean: Tensor
    """Mean of the training observations, [D]."""
    std: Tensor
    """Their standard deviation, [D]; 1 where they do not vary."""

    def __init__(self, settings: FlowSettings) -> None:
        """Build the network with torch's initial weights."""
        super().__init__()
        size = settings.chunk * settings.action_dim
        widths = (size + settings.obs_dim + 1 + 2 * _WAVES, *settings.hidden)
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.SiLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], size))
        self.register_buffer("mean", torch.zeros(settings.obs_dim))
        self.register_buffer("std", torch.ones(settings.obs_dim))

    def normalised(self, obs_BD: Tensor) -> Tensor:
        """Return observations in standard deviations from the mean, limited to what the network can tell apart."""
        return ((obs_BD - self.mean) / self.std).clamp(-_FARTHEST, _FARTHEST)

    def forward(self, x_BA: Tensor, obs_BD: Tensor, time_BF: Tensor) -> Tensor:
        """Return velocities [B, chunk * action_dim]; observations normalised, times as `_time_features`."""
        return self.layers(torch.cat([x_BA, obs_BD, time_BF], dim=-1))


def fit(
    obs_N: ArrayLike,
    chunks_N: ArrayLike,
    *,
    noise: Noise = "shared",
    hidden: tuple[int, ...] = (256, 256),
    euler_steps: int = 10,
    seed: int = 0,
    steps: int = 5000,
    batch_size: int = 256,
    lr: float = 1e-3,
    on_step: Callable[[int, float], None] | None = None,
) -> FlowPolicy:
    """Train a policy on demonstrations: minimise |v(x_t, t, obs) - (a - w)|^2 at x_t = (1 - t) w + t a.

    a is a chunk of the demonstrations, w ~ N(0, I) (one vector repeated over the chunk where the noise is shared) and
    t ~ U(0, 1). Adam, its learning rate falling to 0 along a cosine. Equal arguments give equal policies on one
    machine, and the global random state stays as it was.

    Args:
        obs_N: Observations, float [N, D].
        chunks_N: Chunks of actions in [-1, 1], float [N, chunk, action_dim].
        noise: See `FlowSettings`.
        hidden: See `FlowSettings`.
        euler_steps: See `FlowSettings`.
        seed: Seed of weights, batches and noise.
        steps: Gradient steps, >= 1.
        batch_size: Pairs in a batch, drawn with replacement, >= 1.
        lr: Learning rate at the beginning, > 0.
        on_step: Called after each step with its number, from 1, and its loss.

    Raises:
        ConfigError: A shape or a value does not fit.
    """
    for name, value, least in (("seed", seed, 0), ("steps", steps, 1), ("batch_size", batch_size, 1)):
        check_int(name, value, least=least)
    check_number("lr", lr, above=0)
    obs, chunks = _demonstrations(obs_N, chunks_N)
    settings = FlowSettings(obs.shape[1], chunks.shape[2], chunks.shape[1], noise, hidden, euler_steps)
    field = _fresh_field(settings, obs, seed)
    obs = field.normalised(obs)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(field.parameters(), lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in range(1, steps + 1):
        rows = torch.randint(len(obs), (batch_size,), generator=generator)
        loss = _loss(field, obs[rows], chunks[rows], noise, generator)
        optimizer.zero_grad()
        loss.backward()  # pyright: ignore[reportUnknownMemberType]
        optimizer.step()  # pyright: ignore[reportUnknownMemberType]
        schedule.step()
        if on_step is not None:
            on_step(step, loss.item())
    return FlowPolicy(settings, field)


def _loss(field: VelocityField, obs_BD: Tensor, chunks_BCA: Tensor, noise: Noise, generator: torch.Generator) -> Tensor:
    """Return the flow-matching loss of one batch."""
    batch, chunk, dim = chunks_BCA.shape
    drawn = torch.randn((batch, 1 if noise == "shared" else chunk, dim), generator=generator)
    w = drawn.expand(-1, chunk, -1).reshape(batch, -1)
    t = torch.rand((batch, 1), generator=generator)
    a = chunks_BCA.reshape(batch, -1)
    velocity = field((1.0 - t) * w + t * a, obs_BD, _time_features(t))
    return nn.functional.mse_loss(velocity, a - w)


def _time_features(time_B1: Tensor) -> Tensor:
    """Return times [B, 1] in [0, 1] as features [B, 1 + 2 * _WAVES]."""
    angles = math.pi * time_B1 * torch.arange(1, _WAVES + 1)
    return torch.cat([time_B1, angles.sin(), angles.cos()], dim=-1)


def _fresh_field(settings: FlowSettings, obs_ND: Tensor, seed: int) -> VelocityField:
    """Return an untrained network whose weights come from `seed`, and whose normalisation from the observations."""
    with torch.random.fork_rng(devices=[]):  # pyright: ignore[reportUnknownMemberType]
        torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType]
        field = VelocityField(settings)
    std = obs_ND.std(dim=0, correction=0)
    field.mean.copy_(obs_ND.mean(dim=0))
    field.std.copy_(torch.where(std > 1e-6, std, torch.ones_like(std)))
    return field


def _demonstrations(obs_N: ArrayLike, chunks_N: ArrayLike) -> tuple[Tensor, Tensor]:
    """Return both as tensors, or raise ConfigError."""
    obs, chunks = np.asarray(obs_N, dtype=np.float32), np.asarray(chunks_N, dtype=np.float32)
    if obs.ndim != 2 or chunks.ndim != 3 or len(obs) != len(chunks) or not len(obs):
        raise ConfigError(f"fit needs observations [N, D] and chunks [N, chunk, dim], got {obs.shape}, {chunks.shape}")
    if not np.isfinite(obs).all():
        raise ConfigError(f"observations must be finite, got {obs[~np.isfinite(obs)][0]}")
    outside = chunks[~(np.abs(chunks) <= 1.0 + 1e-6)]
    if outside.size:
        raise ConfigError(f"actions must be in [-1, 1], got {outside[0]:g}; rescale them to the range of the env")
    return torch.as_tensor(obs), torch.as_tensor(chunks)


def _read(path: str | Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return the metadata and the tensors of a .safetensors file, or raise ConfigError."""
    opener: Any = safe_open
    try:
        with opener(str(path), framework="pt") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no dict
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"cannot read {path} as a .safetensors file: {error}") from error


def _tensor(what: str, values: ArrayLike, shape: tuple[int, ...]) -> Tensor:
    """Return a float32 tensor of `shape`, or raise ConfigError."""
    array = np.array(values, dtype=np.float32)
    if array.shape != shape:
        raise ConfigError(f"{what} must have shape {shape}, got {array.shape}")
    return torch.as_tensor(array)
