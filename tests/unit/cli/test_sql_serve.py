"""The flags of `neve sql --serve`, without a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from neve.cli.sql_serve import ServeFlags


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o644, True), (0o640, True)])
def test_passwords_that_others_may_read_draw_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: int, warned: bool
) -> None:
    file = tmp_path / "users"
    file.write_text("ana:secret\n")
    file.chmod(mode)
    options = ServeFlags(serve="127.0.0.1:0", users=file).options()
    assert options is not None
    assert options.users == {"ana": "secret"}
    said = capsys.readouterr().err
    assert ("chmod 600" in said) == warned
    assert "secret" not in said


def test_limits_come_from_flags() -> None:
    flags = ServeFlags(serve="127.0.0.1:0", trust=True, statement_seconds=7)
    options = flags.options()
    assert options is not None
    assert options.limits.statement_seconds == 7
    assert options.limits.connections_per_address_max == 32
