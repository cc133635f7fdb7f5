from lepa.jobspec.diagnostics import DIAGNOSTICS_MAX, EXCERPT_WIDTH_MAX, Diagnostic, Reporter, Source

TEXT = 'job "x" {\n  cuont = 3\n}\n'


def test_a_diagnostic_names_file_line_and_columns() -> None:
    report = Reporter(Source("job.hcl", TEXT))
    report.error(TEXT.index("cuont"), TEXT.index("cuont") + 5, "Unsupported argument", "Not expected here.")
    assert report.found[0].render() == "job.hcl:2,3-8: Unsupported argument; Not expected here."


def test_a_place_over_several_lines_names_both_ends() -> None:
    report = Reporter(Source("job.hcl", TEXT))
    report.error(8, 21, "Too long")
    assert report.found[0].render() == "job.hcl:1,9-2,12: Too long"


def test_an_excerpt_has_a_caret_under_the_culprit() -> None:
    report = Reporter(Source("job.hcl", TEXT))
    report.error(TEXT.index("cuont"), TEXT.index("cuont") + 5, "Unsupported argument", "Not expected here.")
    assert report.found[0].render_excerpt().splitlines() == [
        "Error: Unsupported argument",
        " --> job.hcl:2:3",
        "  |",
        "2 |   cuont = 3",
        "  |   ^^^^^",
        "Not expected here.",
    ]


def test_tabs_do_not_move_the_caret() -> None:
    report = Reporter(Source("job.hcl", "\tx = 1\n"))
    report.error(1, 2, "Bad")
    assert report.found[0].render_excerpt().splitlines()[-2:] == ["1 |  x = 1", "  |  ^"]


def test_a_diagnostic_without_a_place_names_the_file_only() -> None:
    assert (
        Diagnostic("error", "Undefined -var variable", "x", "-var x").render() == "-var x: Undefined -var variable; x"
    )
    assert Diagnostic("error", "Broken").render() == "Broken"
    assert Diagnostic("warning", "Doubtful", "Why", "f").render_excerpt() == "Warning: Doubtful\n  --> f\nWhy"


def test_a_place_beyond_the_end_is_the_end() -> None:
    report = Reporter(Source("job.hcl", "a\n"))
    report.error(9, 12, "Missing")
    assert report.found[0].render() == "job.hcl:2,1-1: Missing"


def test_a_place_far_out_in_a_line_has_no_excerpt() -> None:
    report = Reporter(Source("job.hcl", "a" * 2 * EXCERPT_WIDTH_MAX))
    report.error(EXCERPT_WIDTH_MAX + 5, EXCERPT_WIDTH_MAX + 6, "Bad")
    assert report.found[0].excerpt == ""
    assert report.found[0].render_excerpt() == f"Error: Bad\n  --> job.hcl:1:{EXCERPT_WIDTH_MAX + 6}"


def test_reporters_of_several_sources_share_their_findings() -> None:
    report = Reporter(Source("a", "x"))
    report.beside(Source("b", "y")).warning(0, 1, "Odd")
    assert [each.render() for each in report.found] == ["b:1,1-2: Odd"]
    assert not report.failed
    report.general("Bad")
    assert report.failed


def test_the_same_finding_is_noted_once_and_their_number_is_bounded() -> None:
    report = Reporter(Source("a", "x" * 2 * DIAGNOSTICS_MAX))
    for offset in [0, 0, *range(2 * DIAGNOSTICS_MAX)]:
        report.error(offset, offset + 1, "Bad")
    assert len(report.found) == DIAGNOSTICS_MAX
