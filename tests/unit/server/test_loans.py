"""What other servers were given, and what of it got lost."""

from lepa.server.loans import SILENT_S, Loan, Loans

A, B = Loan("eval-a", "token-a"), Loan("eval-b", "token-b")


def lent() -> Loans:
    loans = Loans()
    assert loans.asked("one", (), 0.0) == []
    loans.lent("one", A)
    loans.lent("one", B)
    return loans


def test_what_a_server_holds_stays_with_it() -> None:
    assert lent().asked("one", ("token-a", "token-b"), 1.0) == []


def test_what_a_server_was_given_and_does_not_name_got_lost_on_the_way() -> None:
    loans = lent()
    assert loans.asked("one", ("token-b",), 1.0) == [A]
    assert loans.asked("one", (), 2.0) == [B]
    assert loans.asked("one", (), 3.0) == []


def test_what_is_done_is_not_lost() -> None:
    loans = lent()
    loans.done("token-a")
    assert loans.asked("one", ("token-b",), 1.0) == []
    assert loans.overdue(1.0 + SILENT_S) == [B]


def test_a_silent_server_has_lost_what_it_was_given() -> None:
    loans = lent()
    assert loans.overdue(SILENT_S - 0.1) == []
    assert sorted(loans.overdue(SILENT_S)) == [A, B]
    assert loans.overdue(2 * SILENT_S) == []


def test_a_server_that_names_what_it_never_had_gets_nothing_by_it() -> None:
    assert Loans().asked("two", ("token-x",), 0.0) == []
