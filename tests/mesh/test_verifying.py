"""Checking passwords: who gets in, what it costs, and what happens when too many come at once."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from echomesh.errors import LoginBusy
from echomesh.mesh.access import Access, Client, ClientRights
from echomesh.mesh.passwords import PasswordHash
from echomesh.mesh.ports import AccessPort, Rights
from echomesh.mesh.verifying import CHECKS, AsyncAccess, Memory, SyncAccess

PASSWORD = "correct horse"
HASH = PasswordHash.of(PASSWORD)
RIGHTS = ClientRights(environments=("TST",), publish=("orders/**",))


def access(*names: str, stored: PasswordHash = HASH, rights: ClientRights = RIGHTS) -> Access:
    return Access({name: Client(name, stored, rights) for name in names})


class Scrypt:
    """The real scrypt, counted; while it is held, every call waits."""

    def __init__(self, real: Callable[..., bytes]) -> None:
        self.real = real
        self.calls = 0
        self.running = 0
        self.most = 0
        self.begun = threading.Semaphore(0)
        self._free = threading.Event()
        self._free.set()
        self._lock = threading.Lock()

    def hold(self) -> None:
        self._free.clear()

    def release(self) -> None:
        self._free.set()

    def __call__(self, *arguments: Any, **options: Any) -> bytes:
        with self._lock:
            self.calls += 1
            self.running += 1
            self.most = max(self.most, self.running)
        self.begun.release()
        try:
            self._free.wait()
            return self.real(*arguments, **options)
        finally:
            with self._lock:
                self.running -= 1


@pytest.fixture
def scrypt(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scrypt]:
    counted = Scrypt(hashlib.scrypt)
    monkeypatch.setattr(hashlib, "scrypt", counted)
    yield counted
    counted.release()


def in_loop(
    use: Callable[[AsyncAccess], Awaitable[None]], current: Callable[[], Access], queue: int | None = None
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        port = AsyncAccess(current, loop) if queue is None else AsyncAccess(current, loop, queue=queue)
        try:
            await use(port)
        finally:
            port.close()

    asyncio.run(main())


def ask(port: AccessPort, client_id: str, password: str | None) -> asyncio.Future[Rights | None]:
    answer: asyncio.Future[Rights | None] = asyncio.get_running_loop().create_future()
    port.verify(client_id, password, answer.set_result)
    return answer


class TestAnswers:
    @pytest.mark.parametrize(
        ("client_id", "password", "expected"),
        [
            ("shop", PASSWORD, RIGHTS),
            ("shop", "wrong", None),
            ("shop", "", None),
            ("shop", None, None),
            ("shop", "x" * 2000, None),
            ("shop", "\ud800", None),
            ("nobody", PASSWORD, None),
            ("", PASSWORD, None),
            ("\ud800", PASSWORD, None),
            ("*", PASSWORD, None),
        ],
    )
    def test_only_the_right_password_of_a_known_client_gets_its_rights(
        self, client_id: str, password: str | None, expected: Rights | None
    ) -> None:
        current = access("shop", "gate")

        async def use(port: AsyncAccess) -> None:
            assert await ask(port, client_id, password) is expected

        in_loop(use, lambda: current)
        answers: list[Rights | None] = []
        SyncAccess(lambda: current).verify(client_id, password, answers.append)
        assert answers == [expected]

    def test_one_client_s_password_is_not_another_s(self) -> None:
        current = Access(
            {**{c.client_id: c for c in access("shop")}, "gate": Client("gate", PasswordHash.of("x"), RIGHTS)}
        )

        async def use(port: AsyncAccess) -> None:
            assert await ask(port, "shop", PASSWORD) is RIGHTS
            assert await ask(port, "gate", PASSWORD) is None
            assert await ask(port, "gate", "x") is RIGHTS

        in_loop(use, lambda: current)

    def test_answers_come_in_the_thread_of_the_loop(self) -> None:
        async def use(port: AsyncAccess) -> None:
            threads: list[int] = []
            answered = asyncio.Event()

            def done(rights: Rights | None) -> None:
                threads.append(threading.get_ident())
                answered.set()

            for password in ("wrong", PASSWORD, PASSWORD):
                answered.clear()
                port.verify("shop", password, done)
                await answered.wait()
            assert threads == [threading.get_ident()] * 3

        in_loop(use, lambda: access("shop"))

    def test_rights_are_those_in_force(self) -> None:
        current = [access("shop")]

        async def use(port: AsyncAccess) -> None:
            assert port.rights("shop") is RIGHTS
            assert port.rights("nobody") is None
            assert await ask(port, "shop", PASSWORD) is RIGHTS
            more = ClientRights(admin=True)
            current[0] = access("shop", rights=more)
            assert port.rights("shop") is more
            assert await ask(port, "shop", PASSWORD) is more
            current[0] = Access()
            assert port.rights("shop") is None
            assert await ask(port, "shop", PASSWORD) is None

        in_loop(use, lambda: current[0])


class TestCost:
    def test_unknown_clients_and_wrong_passwords_cost_the_same_each_time(self, scrypt: Scrypt) -> None:
        sizes: list[tuple[Any, ...]] = []
        real = scrypt.real

        def noted(password: bytes, **options: Any) -> bytes:
            sizes.append((options["n"], options["r"], options["p"], options["dklen"], len(options["salt"])))
            return real(password, **options)

        scrypt.real = noted

        async def use(port: AsyncAccess) -> None:
            for client_id in ("shop", "nobody", "shop", "nobody"):
                await ask(port, client_id, "wrong")

        in_loop(use, lambda: access("shop"))
        assert scrypt.calls == 4
        assert set(sizes) == {(2**14, 8, 1, 32, 16)}

    @pytest.mark.parametrize("password", [None, "", "x" * 2000])
    def test_what_can_be_no_password_costs_nothing_for_known_and_unknown_alike(
        self, scrypt: Scrypt, password: str | None
    ) -> None:
        async def use(port: AsyncAccess) -> None:
            assert ask(port, "shop", password).done()
            assert ask(port, "nobody", password).done()

        in_loop(use, lambda: access("shop"))
        assert scrypt.calls == 0

    def test_a_client_that_comes_back_is_answered_at_once(self, scrypt: Scrypt) -> None:
        async def use(port: AsyncAccess) -> None:
            assert await ask(port, "shop", PASSWORD) is RIGHTS
            for _ in range(2000):
                assert ask(port, "shop", PASSWORD).result() is RIGHTS

        in_loop(use, lambda: access("shop"))
        assert scrypt.calls == 1

    def test_two_thousand_at_once_share_one_check(self, scrypt: Scrypt) -> None:
        async def use(port: AsyncAccess) -> None:
            answers = [ask(port, "shop", PASSWORD) for _ in range(2000)]
            assert port.checking == 1
            assert await asyncio.gather(*answers) == [RIGHTS] * 2000
            assert port.checking == 0

        in_loop(use, lambda: access("shop"))
        assert scrypt.calls == 1

    def test_a_remembered_client_still_pays_for_a_wrong_password(self, scrypt: Scrypt) -> None:
        async def use(port: AsyncAccess) -> None:
            await ask(port, "shop", PASSWORD)
            assert await ask(port, "shop", "wrong") is None
            assert await ask(port, "shop", PASSWORD) is RIGHTS

        in_loop(use, lambda: access("shop"))
        assert scrypt.calls == 2

    def test_a_new_password_makes_the_remembered_one_worthless(self, scrypt: Scrypt) -> None:
        current = [access("shop")]

        async def use(port: AsyncAccess) -> None:
            assert await ask(port, "shop", PASSWORD) is RIGHTS
            current[0] = access("shop", stored=PasswordHash.of("another"))
            assert await ask(port, "shop", PASSWORD) is None
            assert await ask(port, "shop", "another") is RIGHTS

        in_loop(use, lambda: current[0])

    def test_the_same_password_with_a_new_salt_is_checked_anew(self, scrypt: Scrypt) -> None:
        current = [access("shop")]

        async def use(port: AsyncAccess) -> None:
            await ask(port, "shop", PASSWORD)
            current[0] = access("shop", stored=PasswordHash.of(PASSWORD))
            before = scrypt.calls
            assert await ask(port, "shop", PASSWORD) is RIGHTS
            assert scrypt.calls == before + 1

        in_loop(use, lambda: current[0])

    def test_simulations_that_share_a_memory_pay_once(self, scrypt: Scrypt) -> None:
        memory = Memory()
        answers: list[Rights | None] = []
        for _ in range(50):
            SyncAccess(lambda: access("shop"), memory).verify("shop", PASSWORD, answers.append)
        assert answers == [RIGHTS] * 50
        assert scrypt.calls == 1

    def test_memory_holds_no_more_clients_than_the_file(self) -> None:
        memory = Memory()
        for number in range(100):
            memory.add(f"client-{number}", b"mark", access(f"client-{number}", "other"))
        assert len(memory._right) <= 2
        assert not memory.knows("client-0", b"mark")


class TestManyAtOnce:
    def test_two_are_checked_at_once_and_so_many_wait(self, scrypt: Scrypt) -> None:
        async def use(port: AsyncAccess) -> None:
            scrypt.hold()
            answers = [ask(port, "shop", f"guess {number}") for number in range(10)]
            for _ in range(CHECKS):
                await asyncio.to_thread(scrypt.begun.acquire)
            assert port.checking == 10
            scrypt.release()
            assert await asyncio.gather(*answers) == [None] * 10

        in_loop(use, lambda: access("shop"))
        assert (scrypt.most, scrypt.calls) == (CHECKS, 10)

    def test_beyond_the_queue_it_is_busy_at_once_and_open_again_later(self, scrypt: Scrypt) -> None:
        async def use(port: AsyncAccess) -> None:
            scrypt.hold()
            answers = [ask(port, "shop", f"guess {number}") for number in range(CHECKS + 3)]
            refused: list[Rights | None] = []
            for client_id in ("shop", "nobody"):
                with pytest.raises(LoginBusy, match="5 passwords wait to be checked: try again") as caught:
                    port.verify(client_id, "one too many", refused.append)
                assert caught.value.waiting == CHECKS + 3
            # One more for a check that is under way costs nothing.
            answers.append(ask(port, "shop", "guess 0"))
            scrypt.release()
            assert await asyncio.gather(*answers) == [None] * 6
            assert refused == []
            assert await ask(port, "shop", PASSWORD) is RIGHTS

        in_loop(use, lambda: access("shop"), queue=3)

    def test_who_is_remembered_gets_in_while_others_wait(self, scrypt: Scrypt) -> None:
        async def use(port: AsyncAccess) -> None:
            await ask(port, "shop", PASSWORD)
            scrypt.hold()
            answers = [ask(port, "shop", f"guess {number}") for number in range(CHECKS)]
            assert ask(port, "shop", PASSWORD).result() is RIGHTS
            scrypt.release()
            await asyncio.gather(*answers)

        in_loop(use, lambda: access("shop"), queue=0)

    def test_an_entry_that_changed_during_the_check_does_not_let_the_old_password_in(self, scrypt: Scrypt) -> None:
        current = [access("shop")]
        other = PasswordHash.of("another")

        async def use(port: AsyncAccess) -> None:
            for changed in (access("shop", stored=other), Access()):
                current[0] = access("shop")
                scrypt.hold()
                answer = ask(port, "shop", PASSWORD)
                current[0] = changed
                scrypt.release()
                assert await answer is None

        in_loop(use, lambda: current[0])

    def test_one_answer_that_fails_does_not_keep_the_others_from_theirs(self) -> None:
        async def use(port: AsyncAccess) -> None:
            failed: list[object] = []
            asyncio.get_running_loop().set_exception_handler(lambda loop, context: failed.append(context["exception"]))

            def fail(rights: Rights | None) -> None:
                raise ZeroDivisionError

            port.verify("shop", PASSWORD, fail)
            assert await ask(port, "shop", PASSWORD) is RIGHTS
            assert [type(error) for error in failed] == [ZeroDivisionError]

        in_loop(use, lambda: access("shop"))

    def test_after_the_end_nobody_is_called_and_no_thread_is_left(self, scrypt: Scrypt) -> None:
        answers: list[Rights | None] = []

        async def use(port: AsyncAccess) -> None:
            scrypt.hold()
            for number in range(10):
                port.verify("shop", f"guess {number}", answers.append)
            scrypt.release()
            port.close()
            await asyncio.sleep(0)

        in_loop(use, lambda: access("shop"))
        assert answers == []
        assert scrypt.running == 0
        assert [thread.name for thread in threading.enumerate() if "echomesh-password" in thread.name] == []

    def test_a_loop_that_is_closed_already_is_no_error(self, scrypt: Scrypt) -> None:
        async def use() -> AsyncAccess:
            port = AsyncAccess(lambda: access("shop"), asyncio.get_running_loop())
            scrypt.hold()
            port.verify("shop", PASSWORD, lambda rights: None)
            return port

        port = asyncio.run(use())
        scrypt.release()
        port.close()

    def test_a_machine_without_memory_says_no(self, scrypt: Scrypt, caplog: pytest.LogCaptureFixture) -> None:
        def refuse(*arguments: Any, **options: Any) -> bytes:
            raise ValueError("memory limit exceeded")

        async def use(port: AsyncAccess) -> None:
            scrypt.real = refuse
            assert await ask(port, "shop", PASSWORD) is None

        in_loop(use, lambda: access("shop"))
        assert "a password could not be checked" in caplog.text


def test_no_password_is_in_any_log_or_repr(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def use(port: AsyncAccess) -> None:
        answers = [ask(port, "shop", "hunter2"), ask(port, "nobody", "hunter2")]
        shown = repr(port) + repr(vars(port)) + repr(port._look("shop", "hunter2"))
        assert "hunter2" not in shown
        assert HASH.key.hex() not in shown
        await asyncio.gather(*answers)

    in_loop(use, lambda: access("shop"))
    assert "hunter2" not in caplog.text
