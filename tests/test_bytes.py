"""Bytes: strict JSON in, one canonical form out, exact decimals, times, how texts compare."""

from __future__ import annotations

import datetime
import hashlib
import json
import random
import re
import string
import unicodedata
from decimal import Decimal
from fractions import Fraction

import pytest

from eval_loop import (canonical, decimal_of, elapsed_clock, fraction_of, money, normalise,
                       parse_json, parse_utc, sha256, total, utc_now, utc_text)

UTC = datetime.timezone.utc


# ---- JSON in ---------------------------------------------------------------------------------


ACCEPTED = [
    (b"{}", {}), (b" [1,\t2,\r\n3] \n", [1, 2, 3]), (b'"\\u00e9\\ud83d\\ude00"', "é😀"),
    ('"naïve – 例"'.encode(), "naïve – 例"), (b"null", None), (b"true", True), (b"-0", 0),
    (b"0.1", Decimal("0.1")), (b"1e-1", Decimal("0.1")), (b"1.0", Decimal("1.0")),
    (b"1E5", Decimal("100000")), (b"-0.50", Decimal("-0.50")),
    (b"0.1000000000000000055511151231257827", Decimal("0.1000000000000000055511151231257827")),
    (b'{"a":{"a":1},"b":[{"a":2},{"a":3}]}', {"a": {"a": 1}, "b": [{"a": 2}, {"a": 3}]}),
    (b'{"a":1,"A":2,"\\u0061b":3}', {"a": 1, "A": 2, "ab": 3}),
    (b"12345678901234567890123", 12345678901234567890123), (b'"\\ud83d"', "\ud83d"),
]


@pytest.mark.parametrize("raw, value", ACCEPTED, ids=range(len(ACCEPTED)))
def test_strict_json_is_read_as_what_it_says(raw, value):
    read = parse_json(raw)
    assert read == value and type(read) is type(value)


REFUSED = {
    "duplicate key": (b'{"verdict":"fail","verdict":"pass"}', "'verdict' twice"),
    "duplicate key inside": (b'[{"a":{"k":1,"b":2,"k":1}}]', "'k' twice"),
    "duplicate key by escape": (b'{"key":1,"k\\u0065y":2}', "'key' twice"),
    "NaN": (b'{"a":NaN}', "NaN"), "Infinity": (b"[Infinity]", "Infinity"),
    "-Infinity": (b"-Infinity", "-Infinity"),
    "overflow": (b"[1e999]", "1e999"), "underflow": (b"1e-999", "1e-999"),
    "a huge exponent": (b"1e99999999999999999999", "number"),
    "an integer of 5,000 digits": (b"[" + b"9" * 5_000 + b"]", "digits"),
    "trailing data": (b"{} {}", "Extra data"), "a trailing comma": (b"[1,]", "line 1"),
    "a cut document": (b'{"a":[1,2', "line 1"), "nothing": (b"", "not JSON"),
    "blanks": (b" \n\t ", "not JSON"), "NUL": (b"\0" * 40, "not JSON"),
    "a comment": (b"// note\n{}", "not JSON"), "single quotes": (b"{'a':1}", "not JSON"),
    "a raw line feed in a text": (b'"a\nb"', "control character"),
    "a leading zero": (b"01", "not JSON"), "a leading plus": (b"+1", "not JSON"),
    "a bare point": (b".5", "not JSON"), "a hexadecimal number": (b"0x10", "not JSON"),
    "a bare word": (b"pass", "not JSON"), "capital True": (b"True", "not JSON"),
    "a byte-order mark": (b"\xef\xbb\xbf{}", "byte-order mark"),
    "UTF-16 with mark": ('{"a":1}'.encode("utf-16"), "not UTF-8"),
    "UTF-16 without mark": ('{"a":1}'.encode("utf-16-le"), "not JSON"),
    "Latin-1": ('{"approvedBy":"Müller"}'.encode("latin-1"), "not UTF-8 (byte 16)"),
    "an encoded surrogate": (b'"\xed\xa0\xbd"', "not UTF-8"),
    "an overlong form": (b'"\xc0\xaf"', "not UTF-8"),
    "a cut letter": ('"é'.encode()[:-1], "not UTF-8"),
    "deep lists": (b"[" * 200_000, "deep"), "deep objects": (b'{"a":' * 200_000, "deep"),
}


@pytest.mark.parametrize("defect", REFUSED)
def test_json_with_one_defect_is_refused_in_words(defect):
    raw, words = REFUSED[defect]
    with pytest.raises(ValueError, match=re.escape(words)) as refusal:
        parse_json(raw)
    told = str(refusal.value)
    assert len(told) < 200 and "\n" not in told


def test_a_refusal_names_the_line():
    with pytest.raises(ValueError, match="line 3"):
        parse_json(b'{"a": 1,\n "b": 2,\n "c": }')


def test_a_sentence_about_json_continues_the_name_of_its_file():
    for raw, _ in REFUSED.values():
        with pytest.raises(ValueError) as refusal:
            parse_json(raw)
        assert re.match(r"(is|holds|begins|Exceeds)\b", str(refusal.value)), refusal.value


@pytest.mark.parametrize("seed", range(6))
def test_no_bytes_at_all_do_anything_but_parse_or_refuse(seed):
    chance = random.Random(seed)
    good = json.dumps({"a": [1, 0.5, None, True, "é\ud83d", {"b": {}}], "c": "\\\""}).encode()
    for _ in range(400):
        raw = bytearray(good if chance.random() < 0.7 else chance.randbytes(30))
        for _ in range(chance.randrange(4)):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        try:
            parse_json(bytes(raw))
        except ValueError:
            pass


# ---- JSON out --------------------------------------------------------------------------------


def test_canonical_is_compact_ascii_in_insertion_order_with_one_newline():
    document = {"kind": "score", "b": [1, None, True], "a": {"é": "\ud83d \u2028 \0"}}
    raw = canonical(document)
    assert raw == (b'{"kind":"score","b":[1,null,true],"a":{"\\u00e9":"\\ud83d \\u2028 '
                   b'\\u0000"}}\n')
    assert parse_json(raw) == document


def test_canonical_refuses_exact_decimals_so_that_money_is_always_text():
    with pytest.raises(TypeError):
        canonical({"costUsd": Decimal("0.1")})


def test_canonical_bytes_give_the_same_bytes_again():
    chance = random.Random(7)
    letters = string.printable + "éß例😀\u2028\ud83d"
    for _ in range(200):
        document = {"".join(chance.choices(letters, k=5)): [
            chance.randrange(10**12), "".join(chance.choices(letters, k=20)), None]}
        raw = canonical(document)
        assert canonical(parse_json(raw)) == raw
        assert raw.isascii() and raw.count(b"\n") == 1


def test_a_hash_is_that_of_sha256sum():
    assert sha256(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert sha256(b"abc\n") == hashlib.sha256(b"abc\n").hexdigest()


# ---- decimals --------------------------------------------------------------------------------


@pytest.mark.parametrize("value, exact", [
    ("0", "0"), ("0.1", "0.1"), ("0.10", "0.10"), ("1.000000", "1.000000"), ("25", "25"),
    (0, "0"), (3, "3"), (Decimal("0.1"), "0.1"), (Decimal("1E+2"), "100"),
    (Decimal("1E-7"), "0.0000001"), ("9" * 30, "9" * 30), ("9" * 29 + ".9", "9" * 29 + ".9"),
    (10**29, "1" + "0" * 29),
])
def test_a_decimal_is_taken_exactly(value, exact):
    assert decimal_of(value) == Decimal(exact)
    assert fraction_of(value) == Fraction(exact)


@pytest.mark.parametrize("value", [
    True, False, None, 0.1, -1, "-1", "-0", "+1", "1e-1", "1E2", ".5", "5.", "", " 1", "1 ",
    "1\n", "1_000", "1,5", "0x1", "NaN", "Infinity", "inf", "١", "１", "1/2", "0.1 USD", [], {},
    "9" * 31, "9" * 30 + ".9", 10**31, Decimal("-0.1"), Decimal("1E+400"), Decimal("NaN"),
    Decimal("Infinity"), Decimal("1E-40"), b"1",
])
def test_what_is_no_plain_exact_decimal_is_none(value):
    assert decimal_of(value) is None


@pytest.mark.parametrize("amount, text", [
    ("0", "0"), ("0.00", "0"), ("1.50", "1.5"), ("100", "100"), ("1E+3", "1000"),
    ("0.0006000000000000001", "0.0006000000000000001"), ("1E-12", "0.000000000001"),
    ("12345678901234567890.0123456789", "12345678901234567890.0123456789"),
])
def test_money_is_written_plainly(amount, text):
    assert money(Decimal(amount)) == text
    assert decimal_of(money(Decimal(amount))) == Decimal(amount)


def test_sums_are_exact_however_many_and_however_small():
    assert total([]) == 0
    assert total([Decimal("0.1")] * 10) == 1
    assert total([Decimal("9" * 30), Decimal("0." + "0" * 28 + "1")]) == Decimal(
        "9" * 30 + "." + "0" * 28 + "1")
    cents = [Decimal("0.0006000000000000001")] * 24_000
    assert money(total(cents)) == "14.4000000000000024"


def test_an_exact_gain_is_not_lost_to_binary_fractions():
    assert 0.9 - 0.8 < 0.1
    assert fraction_of("0.9") - fraction_of("0.8") == fraction_of("0.1")


# ---- times -----------------------------------------------------------------------------------


NOON = datetime.datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.mark.parametrize("text", [
    "2026-11-30T12:00:00Z", "2026-11-30T12:00Z", "2026-11-30T14:00:00+02:00",
    "2026-11-30T12:00:00+00:00", "2026-11-30T12:00:00-00:00", "2026-11-29T22:00:00-14:00",
    "2026-11-30T12:00:00.000Z", "2026-11-30T12:00:00.000000+00:00", "2026-12-01T01:00+13:00",
])
def test_spellings_of_one_instant_are_one_moment(text):
    assert parse_utc(text) == NOON


@pytest.mark.parametrize("text", [
    "2026-11-30T12:00:00", "2026-11-30", "2026-11-30 12:00:00Z", "2026-11-30T12:00:00z",
    "2026-11-30t12:00:00Z", "2026-W49-1", "2026-11-30T25:00:00Z", "2026-11-31T12:00:00Z",
    "2026-13-01T12:00:00Z", "2026-11-30T12:60:00Z", "2026-11-30T12:00:60Z",
    "2026-11-30T12Z", "20261130T120000Z", "2026-11-30T12:00:00+0200", "2026-11-30T12:00:00+2",
    "2026-11-30T12:00:00+99:00", "2026-11-30T12:00:00.1234567Z", "2026-11-30T12:00:00,5Z",
    "2026-11-30T12:00:00Z\n", " 2026-11-30T12:00:00Z", "٢٠٢٦-11-30T12:00:00Z", "", "now",
    "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "FILL: when", 1764500000, None,
    True, [], "2026-11-30T12:00:00Zulu", "2026-02-29T12:00:00Z",
])
def test_what_names_no_moment_with_an_offset_is_none(text):
    assert parse_utc(text) is None


def test_times_of_receipts_sort_as_text_and_come_back_exactly():
    moments = [NOON + datetime.timedelta(microseconds=step) for step in
               (-10**12, -1, 0, 1, 999_999, 10**6, 10**13)]
    texts = [utc_text(moment) for moment in moments]
    assert texts == sorted(texts) and len({len(text) for text in texts}) == 1
    assert [parse_utc(text) for text in texts] == moments
    east = datetime.timezone(datetime.timedelta(hours=5, minutes=30))
    assert utc_text(NOON.astimezone(east)) == utc_text(NOON) == "2026-11-30T12:00:00.000000Z"


def test_the_clocks_are_aware_and_do_not_go_back():
    assert utc_now().utcoffset() == datetime.timedelta(0)
    readings = [elapsed_clock() for _ in range(100)]
    assert readings == sorted(readings)


# ---- how texts compare -----------------------------------------------------------------------


@pytest.mark.parametrize("one, other", [
    ("Straße", "STRASSE"), ("ﬁve", "FIVE"), ("Cafe\u0301", "CAFÉ"), ("１０ km²", "10 km2"),
    ("a\u00a0b", "a b"), (" a \t\r\n b\u2003", "a b"), ("ΣΑΣ", "σας"), ("Ⅳ", "iv"),
    ("\u2126", "ω"), ("ﬀ", "FF"), ("İ", "i\u0307"), ("a\u2028b", "a b"), ("ẞ", "ss"),
])
def test_texts_that_differ_in_form_only_are_normalised_alike(one, other):
    assert normalise(one) == normalise(other)


@pytest.mark.parametrize("one, other", [
    ("cafe", "café"), ("1.0", "10"), ("a b", "ab"), ("a\u200bb", "ab"), ("-5", "5"),
    ("1,234", "1.234"), ("pass", "pаss"), ("“a”", '"a"'), ("½", "12"), ("O", "0"),
])
def test_texts_that_differ_in_more_are_not(one, other):
    assert normalise(one) != normalise(other)


def test_what_is_normalised_stays_as_it_is():
    """Comparing what was normalised once with what was normalised twice must make no odds."""
    odd = [char for char in map(chr, [*range(0xd800), *range(0xe000, 0x30000)])
           if unicodedata.category(char) not in ("Cn", "Co")]
    assert len(odd) > 100_000
    for start in range(0, len(odd), 40):
        text = " ".join(odd[start:start + 40])
        assert normalise(normalise(text)) == normalise(text)


def test_normalising_never_raises():
    for text in ("\ud83d", "\0", "\udcff" * 3, "a" * 100_000, "\u0345" * 1000, ""):
        assert isinstance(normalise(text), str)
