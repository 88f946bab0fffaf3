"""Wrong tokens: what one address may try, and whom its failures keep out."""

from __future__ import annotations

from pathlib import Path

import pytest
from databases import sqlite_store
from served import TOKEN, serving

from tuner.api.app import create_app
from tuner.api.attempts import AttemptSettings, TooManyAttempts, WriteToken
from tuner.db.store import Store

store = sqlite_store
SETTINGS = AttemptSettings(wrong=3, wrong_if_trusted=5, window_s=60, trusted_s=1000)
HERE, ELSEWHERE, THIRD = "10.0.0.1", "10.0.0.2", "10.0.0.3"
RIGHT = TOKEN.encode()


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.5

    def __call__(self) -> float:
        return self.now


def made(clock: Clock, shared: Path | None = None) -> WriteToken:
    return WriteToken(TOKEN, shared, SETTINGS, clock)


def fail(token: WriteToken, client: str = HERE, times: int = 3) -> None:
    for number in range(times):
        assert not token.accepts(f"guess {number}".encode(), client)


def test_after_some_wrong_tokens_an_address_is_refused_until_the_window_ends() -> None:
    clock = Clock()
    token = made(clock)
    fail(token)
    clock.now += 20
    for given in (b"guess", RIGHT, b""):
        with pytest.raises(TooManyAttempts, match=r"^too many wrong tokens .*limit 3 in 60 s.* in 40 s$") as raised:
            token.accepts(given, HERE)
        assert raised.value.retry_after == {"retry-after": "40"}
    assert token.accepts(RIGHT, ELSEWHERE)
    clock.now += 40
    assert token.accepts(RIGHT, HERE)


def test_an_address_that_had_the_token_may_send_more_wrong_ones_before_it_is_refused() -> None:
    """The failures of others behind the same proxy are its own, and so is a guess that must end at some time."""
    clock = Clock()
    token = made(clock)
    assert token.accepts(RIGHT, HERE)
    fail(token, times=4)
    assert token.accepts(RIGHT, HERE)
    fail(token, times=1)
    for given in (b"guess", RIGHT):
        with pytest.raises(TooManyAttempts, match="limit 5 in 60 s"):
            token.accepts(given, HERE)
    clock.now += 1001
    fail(token)
    with pytest.raises(TooManyAttempts, match="limit 3 in 60 s"):
        token.accepts(RIGHT, HERE)


def test_a_right_token_ends_no_count() -> None:
    token = made(Clock())
    fail(token, times=2)
    assert token.accepts(RIGHT, HERE)
    fail(token, times=3)
    with pytest.raises(TooManyAttempts):
        token.accepts(b"guess", HERE)


@pytest.mark.parametrize("text", [None, ""])
def test_without_a_token_none_is_right(text: str | None) -> None:
    token = WriteToken(text)
    assert token.text is None
    assert not token.accepts(b"", HERE)
    assert not token.accepts(b"guess", HERE)


def test_each_ipv4_address_that_ipv6_holds_is_one() -> None:
    token = made(Clock())
    fail(token, f"::ffff:{HERE}")
    with pytest.raises(TooManyAttempts):
        token.accepts(RIGHT, HERE)
    assert token.accepts(RIGHT, f"::ffff:{ELSEWHERE}")
    assert token.accepts(RIGHT, "::1")


def test_all_addresses_of_a_network_of_ipv6_are_one() -> None:
    token = made(Clock())
    for number in range(3):
        fail(token, f"2001:db8:0:1::{number}", times=1)
    with pytest.raises(TooManyAttempts):
        token.accepts(RIGHT, "2001:db8:0:1:ffff::1")
    assert token.accepts(RIGHT, "2001:db8:0:2::1")


def test_processes_that_share_a_file_count_together(tmp_path: Path) -> None:
    clock = Clock()
    one, other = (made(clock, tmp_path / "attempts") for _ in range(2))
    fail(one, times=2)
    fail(other, times=1)
    for token in (one, other):
        with pytest.raises(TooManyAttempts):
            token.accepts(RIGHT, HERE)
    size = (tmp_path / "attempts").stat().st_size
    for number in range(10_000):
        one.accepts(b"guess", f"10.1.{number // 256}.{number % 256}")
    assert (tmp_path / "attempts").stat().st_size == size == 24 * SETTINGS.addresses


def test_a_clock_that_is_set_back_refuses_nobody() -> None:
    clock = Clock()
    token = made(clock)
    fail(token)
    clock.now -= 3600
    assert token.accepts(RIGHT, HERE)


def test_bearer_tokens_and_sign_ins_are_counted_together(store: Store) -> None:
    def write(given: str, client: str) -> int:
        headers = {"authorization": f"Bearer {given}", "x-forwarded-for": client}
        return service.post("/jobs", json={"op": "gemm", "M": 64}, headers=headers).status_code

    def sign_in(given: str, client: str) -> int:
        return service.post("/pages/sign-in", data={"token": given}, headers={"x-forwarded-for": client}).status_code

    with serving(create_app(store, token=TOKEN)) as service:
        assert [write("guess", HERE) for _ in range(6)] == [403] * 6
        assert [sign_in("guess", HERE) for _ in range(4)] == [403] * 4
        got = service.post("/jobs", headers={"authorization": f"Bearer {TOKEN}", "x-forwarded-for": HERE})
        assert got.status_code == 429
        assert got.json()["error"].startswith(
            "too many wrong tokens from this address (limit 10 in 60 s); try again in "
        )
        assert 0 < int(got.headers["retry-after"]) <= 60
        page = service.post("/pages/sign-in", data={"token": TOKEN}, headers={"x-forwarded-for": HERE})
        assert page.status_code == 429
        assert "try again in" in page.text
        assert 0 < int(page.headers["retry-after"]) <= 60
        assert sign_in(TOKEN, ELSEWHERE) == 303
        assert [sign_in("guess", ELSEWHERE) for _ in range(20)] == [403] * 20
        assert write(TOKEN, ELSEWHERE) not in (403, 429)
        assert service.post("/jobs", headers={"x-forwarded-for": HERE}).status_code == 401  # nothing was guessed
        assert service.get("/jobs", headers={"x-forwarded-for": HERE}).status_code == 200
        assert write("guess", THIRD) == 403
