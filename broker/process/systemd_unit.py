"""`sluicemq systemd`: the unit file of a broker as a service."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

UNIT_DIRECTORY: Final = Path("/etc/systemd/system")

_UNIT: Final = """\
[Unit]
Description=SluiceMQ message broker
Documentation=man:systemd.exec(5)
After=network-online.target
Wants=network-online.target

[Service]
Type=notify
NotifyAccess=main
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
User={user}
Group={user}
StateDirectory=sluicemq
StateDirectoryMode=0700
WorkingDirectory=/var/lib/sluicemq
Restart=on-failure
RestartSec=2
# 2: the configuration is wrong; starting again does not mend that
RestartPreventExitStatus=2
# a start reads what was stored, and says so every second or so
TimeoutStartSec=300
TimeoutStopSec=60
# the event loop has to turn
WatchdogSec=60
LimitNOFILE=65536
OOMScoreAdjust=-500

# nothing but its state directory, the network and its own memory
NoNewPrivileges=true
ProtectSystem=strict
ProtectHome={protect_home}
PrivateTmp=true
PrivateDevices=true
ProtectClock=true
ProtectHostname=true
ProtectKernelLogs=true
ProtectKernelModules=true
ProtectKernelTunables=true
ProtectControlGroups=true
ProtectProc=invisible
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=true
RestrictRealtime=true
RestrictSUIDSGID=true
LockPersonality=true
RemoveIPC=true
CapabilityBoundingSet={capabilities}
AmbientCapabilities={capabilities}
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
UMask=0077

[Install]
WantedBy=multi-user.target
"""


def unit_text(command: str, *, user: str, low_ports: bool = False, home: bool = False) -> str:
    """Return a unit that runs `command` (as a shell would write it) as `user`.

    `low_ports` lets it take ports below 1024, `home` lets it read /home, where the program may lie.
    """
    return _UNIT.format(
        command=command,
        user=user,
        capabilities="CAP_NET_BIND_SERVICE" if low_ports else "",
        protect_home="read-only" if home else "true",
    )


def systemd(
    config: Annotated[Path, typer.Option(help="Configuration file the service reads.")] = Path(
        "/etc/sluicemq/sluicemq.yaml"
    ),
    user: Annotated[str, typer.Option(help="The user it runs as.")] = "sluicemq",
    low_ports: Annotated[bool, typer.Option("--low-ports", help="Let it take ports below 1024.")] = False,
    write: Annotated[
        Path | None,
        typer.Option(help=f"Write sluicemq.service into this directory, for example {UNIT_DIRECTORY}."),
    ] = None,
) -> None:
    """Print a systemd unit for this installation, or write it with --write."""
    program = Path(sys.executable)
    command = shlex.join([str(program), "-m", "sluicemq", "serve", "--config", str(config.absolute())])
    text = unit_text(command, user=user, low_ports=low_ports, home=program.is_relative_to("/home"))
    if write is None:
        typer.echo(text, nl=False)
        return
    target = write / "sluicemq.service"
    try:
        target.write_text(text)
    except OSError as error:
        typer.echo(f"cannot write {target}: {error.strerror}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"{target} written. Next:")
    typer.echo(f"  useradd --system --no-create-home {shlex.quote(user)}    # if there is no such user")
    typer.echo("  systemctl daemon-reload && systemctl enable --now sluicemq")
