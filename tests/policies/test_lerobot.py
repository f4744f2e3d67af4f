from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rl_reward.errors import ConfigError, MissingExtraError
from rl_reward.policies import FrozenPolicy
from rl_reward.policies.lerobot import LeRobotPolicy

STATE, FRONT = "observation.state", "observation.images.front"


class StandIn(torch.nn.Module):
    """Has the face of a LeRobot policy; its actions are the noise it gets, and it remembers the batch."""

    def __init__(self, kind, n_obs_steps=1, scheduler="DDIMScheduler"):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        feature = SimpleNamespace
        state, front = feature(shape=(3,)), feature(shape=(3, 4, 6))
        inputs = {STATE: state, FRONT: front, "observation.images.empty_camera_0": front}
        self.config = SimpleNamespace(
            type=kind,
            chunk_size=5,
            max_action_dim=4,
            horizon=6,
            n_action_steps=4,
            n_obs_steps=n_obs_steps,
            input_features=inputs,
            image_features={FRONT: front},
            action_feature=feature(shape=(2,)),
        )
        self.diffusion = SimpleNamespace(
            noise_scheduler=type(scheduler, (), {})(), generate_actions=self._generate_actions
        )

    def reset(self):
        self.batch = None

    def predict_action_chunk(self, batch, noise):
        self.batch, self.noise = batch, noise
        return noise[:, :, :2]

    def _generate_actions(self, batch, noise):
        self.batch, self.noise = batch, noise
        return noise[:, 1:5]


def frame(*shape):
    return np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)


OBS = {STATE: np.array([1.0, 2.0, 3.0]), FRONT: frame(4, 6, 3)}


@pytest.mark.parametrize(
    ("kind", "noise", "shape", "chunk"),
    [
        ("smolvla", "shared", (4,), 5),
        ("pi0", "independent", (5, 4), 5),
        ("diffusion", "shared", (2,), 4),
        ("diffusion", "independent", (6, 2), 4),
    ],
)
def test_the_sizes_come_from_the_configuration(kind, noise, shape, chunk):
    policy = LeRobotPolicy(StandIn(kind), noise=noise)
    assert isinstance(policy, FrozenPolicy)
    assert (policy.noise_shape, policy.chunk, policy.action_dim) == (shape, chunk, 2)
    actions = policy.act(OBS, np.zeros(shape))
    assert (actions.shape, actions.dtype) == ((chunk, 2), np.float32)


def test_shared_noise_is_repeated_and_independent_noise_is_not():
    inner = StandIn("pi05")
    actions = LeRobotPolicy(inner).act(OBS, [0.1, 0.2, 0.3, 0.4])
    assert np.array_equal(inner.noise.numpy(), np.tile(np.float32([0.1, 0.2, 0.3, 0.4]), (1, 5, 1)))
    assert np.array_equal(actions, np.tile(np.float32([0.1, 0.2]), (5, 1)))
    rows = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)
    assert np.array_equal(LeRobotPolicy(inner, noise="independent").act(OBS, rows), rows[:, :2])


def test_the_batch_of_a_flow_policy():
    inner = StandIn("smolvla")
    LeRobotPolicy(inner, task="Lift it.").act(OBS, np.zeros(4))
    assert inner.batch[STATE].tolist() == [[1, 2, 3]]
    assert inner.batch["task"] == ["Lift it."]
    image = inner.batch[FRONT]
    assert (image.shape, image.dtype) == ((1, 3, 4, 6), torch.float32)
    assert image[0, 2, 1, 3].item() == pytest.approx(OBS[FRONT][1, 3, 2] / 255)
    assert set(inner.batch) == {STATE, FRONT, "task"}


def test_the_observation_may_name_the_task():
    inner = StandIn("smolvla")
    LeRobotPolicy(inner, task="Lift it.").act({**OBS, "task": "Drop it."}, np.zeros(4))
    assert inner.batch["task"] == ["Drop it."]


def test_diffusion_sees_one_observation_as_often_as_it_wants():
    inner = StandIn("diffusion", n_obs_steps=2)
    LeRobotPolicy(inner).act(OBS, np.zeros(2))
    assert inner.batch[STATE].tolist() == [[[1, 2, 3], [1, 2, 3]]]
    assert inner.batch["observation.images"].shape == (1, 2, 1, 3, 4, 6)


def test_diffusion_sees_a_history():
    inner = StandIn("diffusion", n_obs_steps=2)
    policy = LeRobotPolicy(inner)
    policy.act({STATE: [[1, 2, 3], [4, 5, 6]], FRONT: frame(2, 4, 6, 3)}, np.zeros(2))
    assert inner.batch[STATE].tolist() == [[[1, 2, 3], [4, 5, 6]]]
    images = inner.batch["observation.images"]
    assert images[0, 1, 0, 0, 0, 0].item() == pytest.approx(frame(2, 4, 6, 3)[1, 0, 0, 0] / 255)
    with pytest.raises(ConfigError, match="must hold the last 2 observations or one, got 3"):
        policy.act({STATE: np.ones((3, 3)), FRONT: frame(4, 6, 3)}, np.zeros(2))


def test_the_pipelines_run_before_and_after():
    inner = StandIn("pi0")
    policy = LeRobotPolicy(
        inner,
        preprocessor=lambda batch: {**batch, STATE: batch[STATE] * 10, "tokens": len(batch["task"][0])},
        postprocessor=lambda actions: actions * 4,
        task="four",
    )
    actions = policy.act(OBS, [0.1, 0.5, 0, 0])
    assert inner.batch[STATE].tolist() == [[10, 20, 30]]
    assert inner.batch["tokens"] == 4
    assert np.allclose(actions, [0.4, 1.0])  # 2.0 is clipped


def test_the_policy_is_frozen():
    inner = StandIn("pi0").train()
    LeRobotPolicy(inner)
    assert not inner.training and not inner.weight.requires_grad


@pytest.mark.parametrize(
    ("obs", "noise", "message"),
    [
        ({STATE: OBS[STATE]}, np.zeros(4), f"the policy reads '{FRONT}', the observation has {STATE}; see policy_obs"),
        ({**OBS, STATE: np.ones(2)}, np.zeros(4), r"observation.state must have 3 numbers, got shape \(2,\)"),
        ({**OBS, FRONT: frame(3, 4, 6)}, np.zeros(4), r"front must be uint8 \[H, W, 3\], got uint8 \[3, 4, 6\]"),
        ({**OBS, FRONT: np.ones((4, 6, 3))}, np.zeros(4), r"front must be uint8 \[H, W, 3\], got float64 \[4, 6, 3\]"),
        (OBS, np.zeros(2), r"noise must have shape \(4,\), got \(2,\)"),
    ],
)
def test_what_does_not_fit_is_named(obs, noise, message):
    with pytest.raises(ConfigError, match=message):
        LeRobotPolicy(StandIn("smolvla")).act(obs, noise)


def test_policies_whose_noise_does_not_decide_are_refused():
    with pytest.raises(ConfigError, match="takes noise: diffusion, pi0, pi05, smolvla; got 'act'"):
        LeRobotPolicy(StandIn("act"))
    with pytest.raises(ConfigError, match=r"DDPM draws new noise .* DDIMScheduler.from_config"):
        LeRobotPolicy(StandIn("diffusion", scheduler="DDPMScheduler"))
    with pytest.raises(ConfigError, match="noise must be one of shared, independent, got 'pink'"):
        LeRobotPolicy(StandIn("pi0"), noise="pink")


def test_loading_wants_a_folder_and_lerobot(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"holds no LeRobot policy: .* give a local folder"):
        LeRobotPolicy.load("lerobot/smolvla_base")
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setitem(__import__("sys").modules, "lerobot.configs.policies", None)
    with pytest.raises(MissingExtraError, match=r"pip install \"rl-reward\[lerobot\]\""):
        LeRobotPolicy.load(tmp_path)


@pytest.fixture(scope="module")
def diffusion():
    """A small diffusion policy of LeRobot with random weights, and its two pipelines."""
    reason = "lerobot is not installed"
    config_module = pytest.importorskip("lerobot.policies.diffusion.configuration_diffusion", reason=reason)
    model_module = pytest.importorskip("lerobot.policies.diffusion.modeling_diffusion", reason=reason)
    types = pytest.importorskip("lerobot.configs.types", reason=reason)
    factory = pytest.importorskip("lerobot.policies.factory", reason=reason)
    kind, feature = types.FeatureType, types.PolicyFeature
    config = config_module.DiffusionConfig(
        input_features={STATE: feature(kind.STATE, (5,)), FRONT: feature(kind.VISUAL, (3, 32, 32))},
        output_features={"action": feature(kind.ACTION, (4,))},
        n_obs_steps=2,
        horizon=8,
        n_action_steps=6,
        down_dims=(16, 32),
        diffusion_step_embed_dim=8,
        kernel_size=3,
        n_groups=4,
        noise_scheduler_type="DDIM",
        num_train_timesteps=20,
        num_inference_steps=4,
        crop_shape=None,
        spatial_softmax_num_keypoints=4,
        device="cpu",
    )
    torch.manual_seed(0)
    pixels = {"mean": torch.zeros(3, 1, 1), "std": torch.ones(3, 1, 1)}
    stats = {
        STATE: {"min": -torch.ones(5), "max": 3 * torch.ones(5)},
        "action": {"min": -2 * torch.ones(4), "max": 2 * torch.ones(4)},
        FRONT: pixels,
    }
    return model_module.DiffusionPolicy(config), *factory.make_pre_post_processors(config, dataset_stats=stats)


def seen(seed=0):
    rng = np.random.default_rng(seed)
    return {STATE: rng.normal(size=5), FRONT: rng.integers(0, 255, (32, 32, 3)).astype(np.uint8)}


def test_a_real_diffusion_policy_does_what_lerobot_itself_does(diffusion):
    inner, before, after = diffusion
    obs, noise = seen(), np.random.default_rng(1).normal(size=4).astype(np.float32)
    actions = LeRobotPolicy(inner, preprocessor=before, postprocessor=after).act(obs, noise)
    inner.reset()
    image = torch.as_tensor(obs[FRONT]).permute(2, 0, 1).float() / 255
    batch = before({STATE: torch.as_tensor(obs[STATE], dtype=torch.float32), FRONT: image, "task": ""})
    start = torch.as_tensor(noise).expand(1, 8, 4)
    theirs = torch.stack([after(inner.select_action(dict(batch), noise=start))[0] for _ in range(6)])
    assert np.allclose(actions, theirs.clamp(-1, 1).numpy(), atol=1e-6)


def test_a_real_diffusion_policy_is_decided_by_its_noise(diffusion):
    inner, before, after = diffusion
    policy = LeRobotPolicy(inner, preprocessor=before, postprocessor=after, noise="independent")
    noise = np.random.default_rng(1).normal(size=(8, 4))
    first = policy.act(seen(), noise)
    policy.act(seen(7), noise)
    assert np.array_equal(policy.act(seen(), noise), first)
    assert not np.array_equal(policy.act(seen(), -noise), first)


def test_a_saved_diffusion_policy_loads_with_its_pipelines(diffusion, tmp_path):
    inner, before, after = diffusion
    for part in diffusion:
        part.save_pretrained(tmp_path)
    loaded = LeRobotPolicy.load(tmp_path)
    expected = LeRobotPolicy(inner, preprocessor=before, postprocessor=after).act(seen(), np.ones(4))
    assert np.array_equal(loaded.act(seen(), np.ones(4)), expected)


@pytest.fixture
def smolvla(tmp_path, monkeypatch):
    """A SmolVLA of 74 thousand random weights; it takes the words as tokens, from a pipeline that makes them up."""
    reason = "lerobot or a transformers with SmolVLM is not installed"
    config_module = pytest.importorskip("lerobot.policies.smolvla.configuration_smolvla", reason=reason)
    model_module = pytest.importorskip("lerobot.policies.smolvla.modeling_smolvla", reason=reason)
    backbone = pytest.importorskip("lerobot.policies.smolvla.smolvlm_with_expert", reason=reason)
    types, transformers = pytest.importorskip("lerobot.configs.types"), pytest.importorskip("transformers")
    layers = {"num_attention_heads": 2, "intermediate_size": 32}
    transformers.SmolVLMConfig(
        vision_config={**layers, "hidden_size": 16, "num_hidden_layers": 1, "image_size": 32, "patch_size": 8},
        text_config={
            **layers,
            "model_type": "llama",
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_key_value_heads": 1,
            "head_dim": 16,
            "vocab_size": 64,
            "pad_token_id": 0,
        },
        scale_factor=2,
        image_token_id=3,
    ).save_pretrained(tmp_path)
    tokenizer = SimpleNamespace(fake_image_token_id=1, global_image_token_id=2)
    processor = SimpleNamespace(from_pretrained=lambda name: SimpleNamespace(tokenizer=tokenizer))
    monkeypatch.setattr(backbone, "AutoProcessor", processor)
    kind, feature = types.FeatureType, types.PolicyFeature
    config = config_module.SmolVLAConfig(
        input_features={STATE: feature(kind.STATE, (5,)), FRONT: feature(kind.VISUAL, (3, 32, 32))},
        output_features={"action": feature(kind.ACTION, (4,))},
        chunk_size=6,
        n_action_steps=6,
        max_state_dim=8,
        max_action_dim=8,
        resize_imgs_with_padding=(32, 32),
        vlm_model_name=str(tmp_path),
        num_vlm_layers=2,
        num_steps=2,
        device="cpu",
    )
    torch.manual_seed(0)
    return model_module.SmolVLAPolicy(config)


def tokens(batch):
    mask = torch.ones(1, 3, dtype=torch.bool)
    return {
        **batch,
        "observation.language.tokens": torch.tensor([[5, 6, 7]]),
        "observation.language.attention_mask": mask,
    }


def test_a_real_smolvla_does_what_lerobot_itself_does(smolvla):
    policy = LeRobotPolicy(smolvla, task="Lift it.", preprocessor=tokens)
    assert (policy.chunk, policy.action_dim, policy.noise_shape) == (6, 4, (8,))
    obs, noise = seen(), np.random.default_rng(1).normal(size=8).astype(np.float32)
    actions = policy.act(obs, noise)
    policy.act(seen(7), noise)
    assert np.array_equal(policy.act(obs, noise), actions)
    assert not np.array_equal(policy.act(obs, -noise), actions)
    smolvla.reset()
    image = torch.as_tensor(obs[FRONT]).permute(2, 0, 1)[None].float() / 255
    batch = tokens({STATE: torch.as_tensor(obs[STATE], dtype=torch.float32)[None], FRONT: image})
    start = torch.as_tensor(noise).expand(1, 6, 8)
    theirs = torch.stack([smolvla.select_action(dict(batch), noise=start)[0] for _ in range(6)])
    assert np.allclose(actions, theirs.clamp(-1, 1).numpy(), atol=1e-6)
