"""The screen of `lepa top`. Imported only when it is drawn: textual takes a while, and is an extra."""

from collections.abc import Callable
from typing import Any, ClassVar

from textual import work
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.widgets import DataTable, Footer, Input, Static, TabbedContent, TabPane
from textual.worker import get_current_worker

from lepa.cli import top_view as view
from lepa.model.errors import LepaError

TABLES: dict[str, tuple[tuple[str, ...], Callable[[view.Look], list[view.Row]]]] = {
    "Allocations": (view.ALLOCATIONS, view.allocation_rows),
    "Jobs": (view.JOBS, view.job_rows),
    "Nodes": (view.NODES, view.node_rows),
}


class TopApp(App[None]):
    """Draws a look every interval. A look that fails is told in the first line, and the last one stays."""

    CSS = """
    #summary { height: 1; background: $primary; color: $text; padding: 0 1; }
    #filter { height: 3; display: none; }
    #filter.shown { display: block; }
    DataTable { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "quit", "Quit"),
        ("p", "pause", "Pause"),
        ("slash", "filter", "Filter"),
        ("escape", "no_filter", "All rows"),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, ask: Callable[[], view.Look], interval_s: float) -> None:
        """ask: makes one look; it blocks, so it is called in a thread."""
        super().__init__()
        self._ask = ask
        self._interval_s = interval_s
        self._paused = False
        self._filter = ""
        self._look: view.Look | None = None

    def compose(self) -> ComposeResult:
        """The parts of the screen."""
        yield Static("Looking …", id="summary")
        yield Input(placeholder="only rows that hold this text", id="filter")
        with TabbedContent():
            for name in TABLES:
                with TabPane(name, id=name):
                    yield DataTable(id=f"table-{name}", cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        """Begin to look."""
        for name, (header, _) in TABLES.items():
            self._table(name).add_columns(*header)
        self._table("Allocations").focus()
        self.refresh_look()
        self.set_interval(self._interval_s, self.refresh_look)

    def _table(self, name: str) -> "DataTable[Any]":
        return self.query_one(f"#table-{name}", DataTable)

    @work(thread=True, exclusive=True)
    def refresh_look(self) -> None:
        """Ask in a thread, and draw."""
        if self._paused:
            return
        worker = get_current_worker()
        try:
            look = self._ask()
        except LepaError as error:
            if not worker.is_cancelled:
                self.call_from_thread(self._tell, f"{error.message}")
            return
        if not worker.is_cancelled:
            self.call_from_thread(self._draw, look)

    def _tell(self, text: str) -> None:
        self.query_one("#summary", Static).update(text)

    def _draw(self, look: view.Look) -> None:
        self._look = look
        self._tell(view.summary(look) + ("   PAUSED" if self._paused else ""))
        for name, (_, rows_of) in TABLES.items():
            wanted = self._filter.lower()
            rows = [row for row in rows_of(look) if wanted in " ".join(row).lower()]
            shown = self._table(name)
            at = shown.cursor_row
            shown.clear()
            shown.add_rows(rows)
            shown.move_cursor(row=min(at, max(0, len(rows) - 1)))

    def action_pause(self) -> None:
        """Stop looking, or go on."""
        self._paused = not self._paused
        if self._look is not None:
            self._draw(self._look)

    def action_filter(self) -> None:
        """Ask for a text that rows have to hold."""
        field = self.query_one("#filter", Input)
        field.add_class("shown")
        field.focus()

    def action_no_filter(self) -> None:
        """Show all rows again."""
        field = self.query_one("#filter", Input)
        field.value = ""
        field.remove_class("shown")
        self._active_table().focus()

    def _active_table(self) -> "DataTable[Any]":
        return self._table(self.query_one(TabbedContent).active)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while it is typed."""
        self._filter = event.value
        if self._look is not None:
            self._draw(self._look)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Back to the rows, filtered."""
        self._active_table().focus()
