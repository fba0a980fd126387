"""The exact statistics against values made elsewhere, closed forms and brute force.

tests/data/statistics.json holds the reference values, each table with its columns first.
"""
import itertools
import json
import math
import pathlib
import random
from decimal import Decimal
from fractions import Fraction

import pytest

import eval_loop
from eval_loop import (lower_bound, net_gain_lower, percent, sign_flip, sign_test,
                       sign_test_power, upper_bound)

REFERENCE = json.loads((pathlib.Path(__file__).parent / "data" / "statistics.json").read_text())
STEP = Fraction(1, 10**12)          # the grid on which bounds are rounded outward
USUAL = Fraction(1, 20)


def table(name):
    """The rows of one reference table as dicts; a table that is empty would prove nothing."""
    columns, *rows = REFERENCE[name]
    assert rows
    return [dict(zip(columns, row, strict=True)) for row in rows]


def rows(name):
    """The rows of a table as test parameters, each named by its first cells."""
    return [pytest.param(row, id="-".join(str(cell) for cell in list(row.values())[:3]))
            for row in table(name)]


def half_unit(text):
    """Half a unit in the last digit that a reference value gives."""
    return Fraction(Decimal((0, (5,), Decimal(text).as_tuple().exponent - 1)))


def bound_holds(errors, n, limit, alpha=USUAL):
    """Whether at most `errors` of n have a chance of at most alpha at the rate `limit`."""
    a, b = limit.numerator, limit.denominator
    total = sum(math.comb(n, i) * a**i * (b - a) ** (n - i) for i in range(errors + 1))
    return total * alpha.denominator <= alpha.numerator * b**n


def brute_force(differences):
    """Both p-values of the sign-flip test over every sign pattern."""
    observed = sum(differences)
    sums = [sum(sign * abs(size) for sign, size in zip(signs, differences, strict=True))
            for signs in itertools.product((1, -1), repeat=len(differences))]
    return (Fraction(sum(each >= observed for each in sums), len(sums)),
            Fraction(sum(abs(each) >= abs(observed) for each in sums), len(sums)))


# ---- Clopper-Pearson -------------------------------------------------------------------------


@pytest.mark.parametrize("row", rows("clopperPearson"))
def test_bounds_are_the_reference_values_rounded_outward(row):
    alpha = Fraction(row["alpha"])
    upper = upper_bound(row["errors"], row["n"], alpha)
    lower = lower_bound(row["errors"], row["n"], alpha)
    assert (upper, lower) == (Fraction(row["upperUp"]), Fraction(row["lowerDown"]))
    for outward, text in ((upper - Fraction(row["upper"]), row["upper"]),
                          (Fraction(row["lower"]) - lower, row["lower"])):
        assert -half_unit(text) <= outward <= STEP + half_unit(text)


@pytest.mark.parametrize("row", rows("smallestN"))
def test_the_smallest_number_of_samples_reaches_the_limit_and_one_less_does_not(row):
    limit, alpha = Fraction(row["limit"]), Fraction(row["alpha"])
    assert upper_bound(row["errors"], row["n"], alpha) <= limit
    assert upper_bound(row["errors"], row["n"] - 1, alpha) > limit


def test_no_evidence_bounds_nothing():
    assert upper_bound(0, 0) == Fraction(REFERENCE["noEvidence"]["upper"])
    assert lower_bound(0, 0) == Fraction(REFERENCE["noEvidence"]["lower"])


@pytest.mark.parametrize("errors, n", [*REFERENCE["notCounts"], [0, 100_001], [0, True],
                                       [1.0, 5], [-1, -1]])
def test_refuses_counts_that_are_none(errors, n):
    with pytest.raises(ValueError):
        upper_bound(errors, n)


@pytest.mark.parametrize("alpha", [0.05, Decimal("0.05"), 1, Fraction(0), Fraction(1, 2),
                                   Fraction(-1, 20)])
def test_refuses_a_level_that_is_no_fraction_below_one_half(alpha):
    with pytest.raises(ValueError):
        upper_bound(0, 10, alpha)


@pytest.mark.parametrize("n", [1, 2, 10, 59, 500, 2_000])
@pytest.mark.parametrize("alpha", [USUAL, Fraction(1, 40), Fraction(1, 120)])
def test_closed_forms_for_no_error_and_for_nothing_but_errors(n, alpha):
    bound = upper_bound(0, n, alpha)    # the rate p with (1 - p)^n = alpha
    assert (1 - bound) ** n <= alpha < (1 - bound + STEP) ** n
    least = lower_bound(n, n, alpha)    # the rate p with p^n = alpha
    assert least**n <= alpha < (least + STEP) ** n
    assert (upper_bound(n, n, alpha), lower_bound(0, n, alpha)) == (1, 0)


def test_the_bound_is_the_first_rate_on_its_grid_at_which_the_counts_are_rare():
    draw = random.Random(1)
    for _ in range(60):
        n = draw.randint(1, 400)
        errors = draw.randint(0, n - 1)
        alpha = draw.choice([USUAL, Fraction(1, 40), Fraction(1, 360)])
        bound = upper_bound(errors, n, alpha)
        assert bound_holds(errors, n, bound, alpha)
        assert not bound_holds(errors, n, bound - STEP, alpha)


def test_the_bound_rises_with_errors_and_falls_with_samples_and_with_the_level():
    for n in (1, 7, 40):
        assert all(upper_bound(errors, n) < upper_bound(errors + 1, n) for errors in range(n))
    for errors in (0, 1, 5):
        assert all(upper_bound(errors, n) > upper_bound(errors, n + 1)
                   for n in range(errors + 1, 60))
    levels = [Fraction(1, 20 * times) for times in (1, 2, 3, 6, 12)]
    assert sorted(levels, key=lambda level: upper_bound(2, 50, level)) == levels


def test_both_bounds_embrace_the_observed_share():
    for n in range(1, 40):
        for errors in range(n + 1):
            assert lower_bound(errors, n) <= Fraction(errors, n) <= upper_bound(errors, n)


def test_a_hundred_thousand_samples_are_answered():
    assert percent(upper_bound(0, 100_000)) == "0.0030 %"
    assert upper_bound(50, 100_000) == Fraction("0.000632828693")
    assert upper_bound(99_999, 100_000) > Fraction(99_999, 100_000)


def test_the_places_where_a_limit_of_five_percent_is_reached():
    assert upper_bound(0, 58) > USUAL >= upper_bound(0, 59)
    assert upper_bound(1, 92) > USUAL >= upper_bound(1, 93)


# ---- Sign test, sign-flip test, net gain -----------------------------------------------------


@pytest.mark.parametrize("row", rows("signTest"))
def test_sign_test_is_exact(row):
    assert sign_test(row["wins"], row["losses"]) == (
        Fraction(row["pOneSided"]), Fraction(row["pTwoSided"]))


@pytest.mark.parametrize("row", rows("fewestWins"))
def test_the_fewest_wins_that_reach_five_percent(row):
    losses = row["losses"]
    for side, wins in enumerate((row["winsOneSided"], row["winsTwoSided"])):
        assert sign_test(wins, losses)[side] <= USUAL < sign_test(wins - 1, losses)[side]


@pytest.mark.parametrize("row", rows("signFlip"))
def test_sign_flip_is_exact(row):
    assert sign_flip(row["differences"]) == (Fraction(row["pOneSided"]),
                                             Fraction(row["pTwoSided"]))


def test_sign_flip_equals_brute_force_on_200_random_small_inputs():
    draw = random.Random(2)
    for _ in range(200):
        differences = [draw.randint(-4, 4) for _ in range(draw.randint(1, 9))]
        assert sign_flip(differences) == brute_force(differences), differences


def test_sign_flip_is_the_sign_test_when_no_difference_is_larger_than_one():
    for wins in range(9):
        for losses in range(9):
            differences = [1] * wins + [-1] * losses + [0] * 3
            assert sign_flip(differences) == sign_test(wins, losses)


def test_sign_flip_of_nothing_says_nothing():
    assert sign_flip([]) == sign_flip([0, 0, 0]) == (1, 1)


def test_sign_flip_knows_no_order_and_mirrors():
    draw = random.Random(3)
    for _ in range(50):
        differences = [draw.randint(-30, 30) for _ in range(12)]
        shuffled = draw.sample(differences, len(differences))
        assert sign_flip(shuffled) == sign_flip(differences)
        mirrored = [-each for each in differences]
        assert sign_flip(mirrored)[1] == sign_flip(differences)[1]
        assert sign_flip(mirrored)[0] + sign_flip(differences)[0] >= 1


def test_sign_flip_answers_a_thousand_families():
    draw = random.Random(4)
    ones = [draw.choice((-1, 0, 1, 1)) for _ in range(1_000)]
    assert sign_flip(ones) == sign_test(ones.count(1), ones.count(-1))
    many = [draw.randint(-5, 5) for _ in range(1_000)]
    one, two = sign_flip(many)
    spread = math.sqrt(sum(each * each for each in many))   # the normal curve is close by now
    usual = math.erfc((sum(many) - 0.5) / spread / math.sqrt(2)) / 2
    assert abs(float(one) - usual) < 0.001 and 0 < two <= 1


@pytest.mark.parametrize("row", rows("netGain"))
def test_net_gain_bounds_are_the_reference_values(row):
    wins, losses, n = row["wins"], row["losses"], row["n"]
    lower, upper = net_gain_lower(wins, losses, n), -net_gain_lower(losses, wins, n)
    assert abs(lower - Fraction(row["lower"])) < 2 * STEP
    assert abs(upper - Fraction(row["upper"])) < 2 * STEP
    assert lower <= Fraction(wins - losses, n) <= upper


def test_the_net_gain_is_shown_above_zero_from_six_wins_without_a_loss():
    assert net_gain_lower(5, 0, 10) < 0 < net_gain_lower(6, 0, 10)


def test_the_net_gain_bound_is_wrong_at_most_once_in_twenty_samples():
    """The chance, summed exactly, that the bound lies above the true net gain."""
    n = 12
    bounds = {(wins, losses): net_gain_lower(wins, losses, n)
              for wins in range(n + 1) for losses in range(n + 1 - wins)}
    for win, loss in itertools.product(range(0, 101, 10), repeat=2):
        if win + loss <= 100:
            true = Fraction(win - loss, 100)
            missed = sum(math.comb(n, wins) * math.comb(n - wins, losses) * win**wins
                         * loss**losses * (100 - win - loss) ** (n - wins - losses)
                         for (wins, losses), bound in bounds.items() if bound > true)
            assert Fraction(missed, 100**n) <= USUAL, (win, loss)


# ---- Power -----------------------------------------------------------------------------------


@pytest.mark.parametrize("row", rows("signTestPower"))
def test_power_is_the_reference_value(row):
    power = sign_test_power(row["n"], row["winPercent"], row["lossPercent"])
    assert float(power) == pytest.approx(float(row["power"]), rel=1e-12)


def test_power_of_the_whole_grid():
    for row in table("powerGrid"):
        power = sign_test_power(row["n"], row["gainPercent"] + row["lossPercent"],
                                row["lossPercent"])
        assert abs(power - Fraction(row["power"])) <= Fraction(1, 20_000), row


def test_power_equals_a_sum_over_every_outcome():
    for n, win, loss, alpha in ((7, 40, 10, USUAL), (9, 25, 25, Fraction(1, 4)),
                                (6, 0, 30, USUAL)):
        reached = sum(math.comb(n, wins) * math.comb(n - wins, losses)
                      * win**wins * loss**losses * (100 - win - loss) ** (n - wins - losses)
                      for wins in range(n + 1) for losses in range(n + 1 - wins)
                      if wins > losses and sign_test(wins, losses)[0] <= alpha)
        assert sign_test_power(n, win, loss, alpha) == Fraction(reached, 100**n)


def test_without_a_true_difference_the_level_is_kept():
    for n in (5, 12, 30, 60):
        for rate in (5, 20, 45):
            assert sign_test_power(n, rate, rate) <= USUAL


# ---- Numbers for people and for documents ----------------------------------------------------


@pytest.mark.parametrize("rate, up, text", [
    (upper_bound(0, 30), True, "9.5034 %"), (upper_bound(0, 58), True, "5.0340 %"),
    (upper_bound(0, 100), True, "2.9514 %"), (upper_bound(1, 93), True, "4.9994 %"),
    (USUAL, False, "5.0000 %"), (Fraction(1, 3), False, "33.3333 %"),
    (Fraction(1, 3), True, "33.3334 %"), (Fraction(1), True, "100.0000 %"),
    (Fraction(0), True, "0.0000 %"), (Fraction(1, 10**9), True, "0.0001 %"),
    (Fraction("-0.0979416"), False, "-9.7942 %"), (Fraction(-1, 3), True, "-33.3333 %")])
def test_a_percentage_has_four_decimals_rounded_to_the_cautious_side(rate, up, text):
    assert percent(rate, up) == text


@pytest.mark.parametrize("rate, up, text", [
    (Fraction(1, 32), True, "0.031250000000"), (Fraction(1, 3), True, "0.333333333334"),
    (Fraction(1, 3), False, "0.333333333333"), (Fraction(1), False, "1.000000000000"),
    (Fraction(-1, 3), False, "-0.333333333334"), (Fraction(-1, 3), True, "-0.333333333333"),
    (Fraction(7, 2), True, "3.500000000000")])
def test_a_rate_in_a_document_has_twelve_decimals_rounded_to_the_cautious_side(rate, up, text):
    assert eval_loop.decimal_text(rate, up) == text


def test_a_bound_in_a_document_is_the_bound_itself():
    for errors, n in ((0, 59), (3, 153), (1, 10), (499, 500)):
        bound = upper_bound(errors, n)
        assert Fraction(eval_loop.decimal_text(bound)) == bound
