"""Pools of threads: results in order, errors in their place, and nothing that goes on behind.

The inner law of core/: what all readers and writers build on.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings, strategies as st
from support import wait_for

from tfrecorder.core.threads import (
    Budget,
    ThreadPool,
    is_unwanted,
    map_ahead,
    map_at_once,
    run_in_order,
)


@pytest.mark.slow
@settings(deadline=None)
@given(
    delays=st.lists(st.sampled_from([0, 0, 0.001]), max_size=20),
    threads=st.integers(1, 4),
    more=st.integers(0, 4),
    together=st.integers(1, 3),
)
def test_results_are_finished_once_and_in_order(delays, threads, more, together):
    finished, under_way, most = [], set(), 0
    lock = threading.Lock()

    def work(number):
        nonlocal most
        with lock:
            under_way.add(number)
            most = max(most, len(under_way))
        time.sleep(delays[number])
        return number

    def finish(numbers):
        assert 1 <= len(numbers) <= together
        finished.extend(numbers)
        with lock:
            under_way.difference_update(numbers)

    ahead = (threads + more) * together
    with ThreadPoolExecutor(threads) as pool:
        run_in_order(pool, threads, work, finish, range(len(delays)), ahead, together)
    assert finished == list(range(len(delays)))
    assert most <= ahead


@pytest.mark.parametrize("fails", ["work", "finish"])
def test_an_error_stops_every_thread_and_is_raised(fails):
    started = []

    def work(number):
        started.append(number)
        if fails == "work" and number == 5:
            raise ValueError("five")
        return number

    def finish(numbers):
        if fails == "finish" and 5 in numbers:
            raise ValueError("five")

    with ThreadPoolExecutor(3) as pool, pytest.raises(ValueError, match="five"):
        run_in_order(pool, 3, work, finish, range(10_000), ahead=6)
    assert len(started) < 20


def test_what_is_taken_together_is_not_all_done_once_another_has_failed():
    started, both_begun = [], threading.Barrier(2)

    def work(number):
        started.append(number)
        if number in (0, 100):
            both_begun.wait(60)
        if number == 0:
            raise ValueError("none")
        assert until_unwanted()

    with ThreadPoolExecutor(2) as pool, pytest.raises(ValueError, match="none"):
        run_in_order(pool, 2, work, lambda numbers: None, range(200), ahead=200, together=100)
    assert sorted(started) == [0, 100]


def test_work_that_waits_hears_that_other_work_failed_and_the_failure_is_raised():
    heard, all_begun = [], threading.Barrier(4)

    def work(number):
        all_begun.wait()
        if number == 1:
            raise ValueError("one")
        heard.append(until_unwanted())
        raise RuntimeError("nobody wants to know")

    with ThreadPoolExecutor(4) as pool, pytest.raises(ValueError, match="one"):
        run_in_order(pool, 4, work, lambda numbers: None, range(4), ahead=4)
    assert heard == [True] * 3
    heard.clear()
    with ThreadPoolExecutor(4) as pool, pytest.raises(ValueError, match="one"):
        list(map_ahead(pool, lambda number: work(number + 1), range(4), ahead=4))
    assert heard == [True] * 3


def test_work_in_threads_of_threads_hears_it_too():
    heard, all_begun = [], threading.Barrier(4)

    def inner(number):
        all_begun.wait()
        heard.append(until_unwanted())

    def outer(number):
        if number == 0:
            all_begun.wait()
            raise ValueError("none")
        map_at_once(inner, range(3), 3)

    with pytest.raises(ValueError, match="none"):
        map_at_once(outer, range(2), 2)
    assert heard == [True] * 3


def test_map_ahead_keeps_few_under_way():
    done = []
    with ThreadPoolExecutor(2) as pool:
        results = map_ahead(pool, lambda number: done.append(number) or number, range(100), ahead=4)
        assert [next(results) for _ in range(3)] == [0, 1, 2]
        time.sleep(0.05)
        assert len(done) <= 7
        assert list(results) == list(range(3, 100))


def test_some_run_at_a_time_and_results_are_in_order():
    under_way, most, lock, three = set(), 0, threading.Lock(), threading.Barrier(3)

    def work(number):
        nonlocal most
        with lock:
            under_way.add(number)
            most = max(most, len(under_way))
        three.wait(60)
        time.sleep(0.003 * (3 - number % 3))
        with lock:
            under_way.discard(number)
        return -number

    assert map_at_once(work, range(12), 3) == [-number for number in range(12)]
    assert most == 3


def until_unwanted():
    """Work without end; true if it heard within a minute that nobody wants it."""
    end = time.monotonic() + 60
    while not is_unwanted() and time.monotonic() < end:
        time.sleep(0.01)
    return is_unwanted()


@pytest.mark.parametrize("how", ["another fails", "nobody takes the rest"])
def test_the_others_hear_when_they_are_unwanted(how):
    told, begun, running = [], [], threading.Event()

    def work(number):
        begun.append(number)
        if number:
            running.set()
            told.append(until_unwanted())
        running.wait(60)
        if how == "another fails":
            raise ValueError("none")

    def all_of_them():
        with ThreadPool(2, "side") as pool:
            yield from map_ahead(pool, work, range(100), 3, patience=2)

    results = all_of_them()
    if how == "another fails":
        with pytest.raises(ValueError, match="none"):
            next(results)
    else:
        next(results)
        results.close()
    assert told
    assert all(told)
    assert len(begun) <= 4
    left = [thread for thread in threading.enumerate() if thread.name == "side"]
    for thread in left:
        thread.join(60)
    assert not any(thread.is_alive() for thread in left)


def test_results_that_wait_are_bounded_by_their_weight():
    begun, begun_by_then = [], []

    def work(number):
        begun.append(number)
        if number == 0:
            wait_for(lambda: len(begun) > 5)
            time.sleep(0.1)  # in which a sixth would begin
        return number

    def finish(numbers):
        begun_by_then.append(len(begun))

    with ThreadPoolExecutor(2) as pool:
        run_in_order(pool, 2, work, finish, range(30), ahead=30, weigh=lambda _: 10, weight=40)
    assert len(begun_by_then) == 30
    # While the first was late, five others came to wait: with them it was more than 40.
    assert begun_by_then[0] == 6


@settings(deadline=None)
@given(st.lists(st.integers(1, 150), min_size=1, max_size=40), st.integers(1, 6))
def test_a_budget_is_never_overdrawn_and_lets_everyone_in(sizes, threads):
    budget, lock = Budget(100), threading.Lock()
    taken, most = [], []

    def use(size):
        with budget.room(size):
            with lock:
                taken.append(size)
                most.append(sum(min(one, 100) for one in taken))
            with lock:
                taken.remove(size)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(use, sizes))
    assert len(most) == len(sizes)
    assert max(most) <= 100
