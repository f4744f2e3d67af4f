#!/usr/bin/env bash
# The light install of LIBERO and robosuite: only what their simulators need, beside any torch, without the gigabytes of
# training libraries that `pip install "rl-reward[libero]"` brings. Run it inside the virtual environment:
#
#   pip install -e ".[sb3]" && bash training/install_libero.sh
#
# Frames need headless OpenGL: apt install libegl1 libgl1 libegl-mesa0 libgl1-mesa-dri (or libosmesa6).
# The assets (meshes and textures, not in the wheel) are looked for in $RL_REWARD_LIBERO_ASSETS first; to fetch them:
#   python -c 'from libero.libero.utils.download_utils import download_assets_from_huggingface as d; d()'
set -euo pipefail
constraints="$(dirname "$0")/../constraints.txt"

pip install --no-deps hf-libero==0.1.4 robosuite==1.4.0 bddl==1.0.1
pip install -c "$constraints" mujoco==3.3.0 numba scipy pillow opencv-python-headless easydict future cloudpickle \
  pyyaml matplotlib termcolor jinja2 glfw imageio PyOpenGL h5py
