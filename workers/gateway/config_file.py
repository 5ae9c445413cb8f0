"""The last configuration, kept for a start without the control plane."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import msgspec

from workers import disk, log
from workers.protocol.control import GatewayConfig

logger = log.get("gateway")

#: seconds after which a configuration that could not be written is tried again
RETRY_S = 10.0


class ConfigFile:
    """Writes configurations in a thread: a disk may take seconds. The latest wins."""

    def __init__(self, path: Path):
        self._path = path
        self._latest: GatewayConfig | None = None
        self._writer: asyncio.Task | None = None
        self._closing = asyncio.Event()

    def load(self) -> GatewayConfig | None:
        try:
            data = disk.read(self._path)
            if data is None:
                return None
            config = msgspec.json.decode(data, type=GatewayConfig)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            logger.error("config_unreadable", path=str(self._path), reason=str(error))
            return None
        logger.info("config_loaded", path=str(self._path))
        return config

    def store(self, config: GatewayConfig) -> None:
        self._latest = config
        if self._writer is None:
            self._writer = asyncio.create_task(self._write(), name="config-file")

    async def close(self) -> None:
        self._closing.set()
        if self._writer is not None:
            await self._writer

    async def _write(self) -> None:
        while (config := self._latest) is not None:
            self._latest = None
            try:
                await asyncio.to_thread(_replace, self._path, config)
            except OSError as error:
                # It serves all the same; only a restart without the control plane would use an older plan.
                logger.error("config_not_stored", path=str(self._path), reason=str(error), retry_s=RETRY_S)
                if self._closing.is_set():
                    break
                self._latest = self._latest or config
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), RETRY_S)
        self._writer = None


def _replace(path: Path, config: GatewayConfig) -> None:
    disk.write_private(path, msgspec.json.encode(config))
