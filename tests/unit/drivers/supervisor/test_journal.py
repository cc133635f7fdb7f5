import os
from pathlib import Path

from lepa.drivers.supervisor.journal import JOURNAL_BYTES_MAX, JournalFile, read_journal
from lepa.drivers.supervisor.messages import Exit
from lepa.drivers.supervisor.records import TaskRecord, exit_record, run_record, start_record


def test_what_was_appended_is_read_back(tmp_path: Path) -> None:
    tasks = [TaskRecord("a", pid=3, born=4, started_at=5)]
    journal = JournalFile(str(tmp_path), "boot", lambda: tasks)
    assert journal.sync()
    journal.append(start_record(TaskRecord("b")))
    journal.append(run_record(TaskRecord("b", pid=6, born=7, started_at=8)))
    journal.append(exit_record("a", Exit(2)), durable=True)
    assert journal.sync()
    journal.close()
    read = read_journal(str(tmp_path))
    assert read.boot_id == "boot"
    assert read.tasks["a"].exit == Exit(2)
    assert read.tasks["b"].pid == 6


def test_a_torn_last_line_costs_only_itself_and_is_gone_after_a_rewrite(tmp_path: Path) -> None:
    journal = JournalFile(str(tmp_path), "boot", lambda: [TaskRecord("a")])
    journal.sync()
    journal.close()
    with open(tmp_path / "journal", "ab") as file:
        file.write(b"12345678 {")
    assert read_journal(str(tmp_path)).damaged == 1
    JournalFile(str(tmp_path), "boot", lambda: [TaskRecord("a")]).sync()
    assert read_journal(str(tmp_path)).damaged == 0


def test_it_is_rewritten_when_it_is_mostly_history(tmp_path: Path) -> None:
    journal = JournalFile(str(tmp_path), "boot", list)
    journal.sync()
    for number in range(20_000):
        journal.append(start_record(TaskRecord(f"task-{number}")))
        journal.sync()
    journal.close()
    assert (tmp_path / "journal").stat().st_size < JOURNAL_BYTES_MAX + 1000


def test_a_disk_that_takes_nothing_is_told_and_made_up_for_later(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    tasks = [TaskRecord("a")]
    journal = JournalFile(str(folder), "boot", lambda: tasks)
    journal.append(exit_record("a", Exit(1)), durable=True)
    assert not journal.sync()
    folder.mkdir()
    assert journal.sync()
    assert set(read_journal(str(folder)).tasks) == {"a"}
    assert os.stat(folder / "journal").st_mode & 0o777 == 0o600


def test_no_journal_means_no_tasks(tmp_path: Path) -> None:
    assert read_journal(str(tmp_path)).tasks == {}
