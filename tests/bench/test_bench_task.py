"""Tasks: their names, their tokens, and the grid of them."""

import pytest

from llamina.bench import Task, grid


@pytest.mark.parametrize(
    ("task", "name"),
    [
        (Task("answer", 128, 16, prompt=32), "pg32+128 b16"),
        (Task("prompt", 512), "pp512"),
        (Task("generate", 128), "tg128"),
        (Task("generate", 128, 8), "tg128 b8"),
        (Task("prompt", 512, 1, 4096), "pp512 @ d4096"),
        (Task("generate", 16, 32, 100), "tg16 b32 @ d100"),
    ],
)
def test_names_are_those_of_llama_bench(task: Task, name: str) -> None:
    assert task.name == name


def test_the_grid_has_no_doubles_and_no_zeros() -> None:
    tasks = grid([512, 0], [128], [1, 8, 8], [0, 64])
    assert [task.name for task in tasks] == [
        "pp512", "pp512 @ d64", "tg128", "tg128 b8", "tg128 @ d64", "tg128 b8 @ d64",
    ]  # fmt: skip
    assert grid([0], [0], [1], [0]) == []


def test_tokens_come_from_the_seed_alone() -> None:
    task = Task("generate", 5, 3, 7)
    before, fresh = task.draw(0, 100)
    assert task.draw(0, 100) == (before, fresh)
    assert [len(row) for row in before] == [7] * 3 and [len(row) for row in fresh] == [1] * 3
    assert all(0 <= token < 100 for row in (*before, *fresh) for token in row)
    assert task.draw(1, 100) != (before, fresh)
    assert [len(row) for row in Task("prompt", 5, 1, 0).draw(0, 100)[1]] == [5]


def test_tokens_of_one_task_do_not_begin_those_of_another() -> None:
    """Else a cache of prefixes would know them."""
    deep, shallow = Task("generate", 5, 1, 8).draw(0, 10**6), Task("prompt", 8).draw(0, 10**6)
    assert deep[0][0] != shallow[1][0]


def test_work_and_reach() -> None:
    task = Task("generate", 5, 3, 7)
    assert (task.work, task.reach) == (15, 12)
