import math

import numpy as np
import pytest

from rl_reward import ConfigError
from rl_reward._checks import check_int, check_number, check_text


@pytest.mark.parametrize("value", [None, "1", True, math.nan, math.inf, 10**400, [1], -0.1, 1.1])
def test_what_is_no_number_in_range_is_refused_in_one_line(value):
    with pytest.raises(ConfigError, match=r"^x must be a finite number >= 0 and <= 1, got ") as refusal:
        check_number("x", value, least=0, most=1)
    assert len(str(refusal.value)) < 150 and "\n" not in str(refusal.value)


def test_numbers_of_numpy_are_numbers():
    assert check_number("x", np.float32(0.5), above=0) == 0.5
    assert check_int("n", np.int64(3), least=1) == 3


@pytest.mark.parametrize("value", [None, "1", False, 1.0, 0, 5])
def test_what_is_no_integer_in_range_is_refused(value):
    with pytest.raises(ConfigError, match="n must be an integer of at least 1 and at most 4, got"):
        check_int("n", value, least=1, most=4)


@pytest.mark.parametrize("value", [None, 3, "", " \n"])
def test_what_is_no_text_is_refused(value):
    with pytest.raises(ConfigError, match="t must be a text that is not empty, got"):
        check_text("t", value)
