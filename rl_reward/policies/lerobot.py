"""LeRobot policies that sample from noise (pi0, pi0.5, SmolVLA, diffusion), as frozen policies that can be steered.

policy = LeRobotPolicy.load("outputs/train/checkpoints/last/pretrained_model", task="Pick up the ketchup.")
env = SteeringEnv(task_env, policy, chunk=20, policy_obs=lambda obs: {
    "observation.state": obs["state"], "observation.images.front": obs["pixels"],
})
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rl_reward.errors import ConfigError, MissingExtraError

try:
    import torch
    from torch import Tensor
except ImportError as error:
    raise MissingExtraError("torch", "steering") from error

Noise = Literal["shared", "independent"]

FLOWS = ("pi0", "pi05", "smolvla")
"""The flow-matching policies of LeRobot that take their noise as an argument; beside them there is diffusion."""


class LeRobotPolicy:
    """A LeRobot policy behind `FrozenPolicy`; it keeps nothing from one call to the next.

    An observation is a mapping with LeRobot's own names, those of `policy.config.input_features`: images uint8
    [H, W, 3], all else float vectors. Build it with the `policy_obs` of `SteeringEnv`. "task" may be among them.

    A diffusion policy that reads the last n observations gets them as arrays with one more axis [n, ...] in front
    (gymnasium's `FrameStackObservation` makes such), or sees the one it is given n times, as at an episode's start.
    """

    def __init__(
        self,
        policy: Any,
        *,
        task: str = "",
        preprocessor: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None,
        postprocessor: Callable[[Tensor], Tensor] | None = None,
        noise: Noise = "shared",
    ) -> None:
        """Freeze `policy`.

        Args:
            policy: An instance of LeRobot's `PreTrainedPolicy`, on its device.
            task: The instruction, for policies that read one.
            preprocessor: LeRobot's first pipeline of `make_pre_post_processors`: it normalises and reads the task.
            postprocessor: Its second one, which takes actions back to the range of the environment.
            noise: One vector repeated over all actions (shared), as DSRL does, or one for each (independent).

        Raises:
            ConfigError: The policy does not sample from noise, or its noise does not decide what it does.
        """
        if noise not in get_args(Noise):
            raise ConfigError(f"noise must be one of {', '.join(get_args(Noise))}, got {noise!r}")
        _check_policy(policy)
        self.config: Any = policy.config
        """The configuration of the policy."""
        self.task = task
        """The instruction."""
        self._policy = policy.eval().requires_grad_(False)
        self._device: torch.device = next(policy.parameters()).device
        self._preprocessor, self._postprocessor = preprocessor or _same, postprocessor or _same
        self._is_shared = noise == "shared"
        self._is_diffusion = self.config.type == "diffusion"

    @classmethod
    def load(cls, folder: str | Path, *, task: str = "", noise: Noise = "shared", device: str = "cpu") -> LeRobotPolicy:
        """Read a policy and its pipelines from a local folder, as LeRobot's training writes it.

        The folder is never looked for elsewhere. pi0 and SmolVLA name a tokenizer or a backbone by its place on the
        hub, which LeRobot reads from the hub's cache or downloads: set HF_HUB_OFFLINE=1 to allow the cache only.

        Raises:
            ConfigError: There is no such folder, or it holds another kind of policy.
            MissingExtraError: LeRobot is not installed.
        """
        if not (Path(folder) / "config.json").is_file():
            raise ConfigError(f"{folder} holds no LeRobot policy: there is no config.json; give a local folder")
        try:
            configs: Any = importlib.import_module("lerobot.configs.policies")
            factory: Any = importlib.import_module("lerobot.policies.factory")
        except ImportError as error:
            raise MissingExtraError("lerobot", "lerobot") from error
        try:
            config = configs.PreTrainedConfig.from_pretrained(folder, local_files_only=True)
        except Exception as error:  # draccus and LeRobot raise kinds of their own
            told = " ".join(str(error).split())[:200]
            raise ConfigError(f"{folder} holds no LeRobot policy that can be read: {told}") from error
        config.device = device
        policy = factory.get_policy_class(config.type).from_pretrained(folder, config=config, local_files_only=True)
        on_device = {"device_processor": {"device": device}}
        before, after = factory.make_pre_post_processors(config, str(folder), preprocessor_overrides=on_device)
        return cls(policy, task=task, preprocessor=before, postprocessor=after, noise=noise)

    @property
    def chunk(self) -> int:
        """Actions one call returns."""
        return int(self.config.n_action_steps if self._is_diffusion else self.config.chunk_size)

    @property
    def action_dim(self) -> int:
        """Numbers in one action."""
        return int(self.config.action_feature.shape[0])

    @property
    def noise_shape(self) -> tuple[int, ...]:
        """Shape of the noise. The flow policies pad actions, so theirs is wider than an action (32 by default)."""
        return self._full_noise[1:] if self._is_shared else self._full_noise

    @property
    def _full_noise(self) -> tuple[int, int]:
        """Rows and columns of the noise the network starts from."""
        if self._is_diffusion:
            return int(self.config.horizon), self.action_dim
        return int(self.config.chunk_size), int(self.config.max_action_dim)

    @torch.no_grad()
    def act(self, obs: Mapping[str, Any], noise: ArrayLike) -> NDArray[np.float32]:
        """Return the actions, float32 [chunk, action_dim], clipped to [-1, 1].

        Args:
            obs: One observation, see the class.
            noise: Noise of `noise_shape`.

        Raises:
            ConfigError: A part of the observation is missing, or a shape does not fit.
        """
        given = np.array(noise, dtype=np.float32)
        if given.shape != self.noise_shape:
            raise ConfigError(f"the noise must have shape {self.noise_shape}, got {given.shape}")
        start = torch.as_tensor(given, device=self._device).expand(1, *self._full_noise)
        batch = {name: self._placed(value) for name, value in self._preprocessor(self._batch(obs)).items()}
        chunk = self._denoise_history(batch, start) if self._is_diffusion else self._denoise(batch, start)
        actions = cast(Tensor, self._postprocessor(chunk[0]))
        return actions.float().clamp(-1.0, 1.0).cpu().numpy()

    def _denoise(self, batch: dict[str, Any], noise: Tensor) -> Tensor:
        """Return the chunk [1, chunk, action_dim] of a flow policy."""
        self._policy.reset()
        return self._policy.predict_action_chunk(batch, noise=noise)

    def _denoise_history(self, batch: dict[str, Any], noise: Tensor) -> Tensor:
        """Return the chunk [1, chunk, action_dim] of a diffusion policy."""
        # Not predict_action_chunk: it reads queues that only select_action fills, and not in every version.
        steps = int(self.config.n_obs_steps)
        seen = {name: _history(name, batch[name], len(f.shape), steps) for name, f in self._features.items()}
        cameras = [seen.pop(name) for name in self.config.image_features]
        if cameras:
            seen["observation.images"] = torch.stack(cameras, dim=2)
        return self._policy.diffusion.generate_actions(seen, noise=noise)

    @property
    def _features(self) -> dict[str, Any]:
        """What the policy reads, by name; placeholders for absent cameras left out."""
        features = cast("dict[str, Any]", self.config.input_features)
        return {name: feature for name, feature in features.items() if "empty_camera" not in name}

    def _batch(self, obs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the observation as LeRobot takes it, tensors [1, ...]."""
        missing = [name for name in self._features if name not in obs]
        if missing:
            raise ConfigError(f"the policy reads {missing[0]!r}, the observation has {', '.join(obs)}; see policy_obs")
        images = self.config.image_features
        batch: dict[str, Any] = {
            name: _image(name, obs[name]) if name in images else _vector(name, obs[name], int(feature.shape[0]))
            for name, feature in self._features.items()
        }
        return {**batch, "task": [str(obs.get("task", self.task))]}

    def _placed(self, value: Any) -> Any:
        return value.to(self._device) if isinstance(value, Tensor) else value


def _same(value: Any) -> Any:
    return value


def _check_policy(policy: Any) -> None:
    """Raise ConfigError unless the noise alone decides what `policy` does."""
    kind = policy.config.type
    if kind not in ("diffusion", *FLOWS):
        raise ConfigError(f"steering needs a policy that takes noise: diffusion, {', '.join(FLOWS)}; got {kind!r}")
    if kind == "diffusion" and type(policy.diffusion.noise_scheduler).__name__ == "DDPMScheduler":
        raise ConfigError(
            "DDPM draws new noise at each denoising step, so the first one decides little; set "
            "policy.diffusion.noise_scheduler = DDIMScheduler.from_config(policy.diffusion.noise_scheduler.config)"
        )


def _history(name: str, value: Tensor, rank: int, steps: int) -> Tensor:
    """Return [1, steps, ...] of one observation [1, ...], repeated, or of a history [1, steps, ...]."""
    if value.ndim == rank + 1:
        value = value.unsqueeze(1).expand(-1, steps, *value.shape[1:])
    if value.shape[1] != steps:
        raise ConfigError(f"{name} must hold the last {steps} observations or one, got {value.shape[1]}")
    return value


def _image(name: str, frame: ArrayLike) -> Tensor:
    """Return a frame uint8 [..., H, W, 3] as floats in [0, 1], [1, ..., 3, H, W]."""
    array = np.asarray(frame)
    if array.dtype != np.uint8 or array.ndim < 3 or array.shape[-1] != 3:
        raise ConfigError(f"{name} must be uint8 [H, W, 3], got {array.dtype} {list(array.shape)}")
    return torch.as_tensor(np.moveaxis(array, -1, -3)[None].astype(np.float32) / 255.0)


def _vector(name: str, values: ArrayLike, size: int) -> Tensor:
    """Return numbers float [..., size] as [1, ..., size]."""
    array = np.array(values, dtype=np.float32)
    if array.shape[-1:] != (size,):
        raise ConfigError(f"{name} must have {size} numbers, got shape {array.shape}")
    return torch.as_tensor(array[None])
