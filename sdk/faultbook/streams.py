"""Reading one input as plain bytes: decompressed, decoded, always from the beginning."""

from __future__ import annotations

import codecs
import contextlib
import functools
import io
import re
import sys
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO, cast

from . import lazy
from .model import Source

COMPRESSED = lazy.regex(r"\.(gz|zst|zstd)$", re.I)


class SourceError(Exception):
    """An input that cannot be read; `str()` is one clear line for the user."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


def open_stream(source: Source) -> BinaryIO:
    """The input's bytes from the beginning: decompressed, without a byte order mark, UTF-16
    turned into UTF-8. A compressed file that is cut or damaged ends where it breaks."""
    try:
        stream = _raw_stream(source)
        mark = _peek(stream, 512)
        if encoding := _utf16(mark):
            return cast(BinaryIO, io.BufferedReader(_Utf16(stream, encoding), 1 << 16))
        if mark.startswith(codecs.BOM_UTF8):
            stream.read(3)
        return stream
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(source.name, reason(error)) from None


def seekable(source: Source) -> bool:
    """Whether `open_stream` gives a stream in which seeking is cheap."""
    return source.data is not None or (source.path is not None and _compression(source.path) == "")


def _compression(path: str) -> str:
    match = COMPRESSED.search(path)
    return match.group(1).lower().replace("zstd", "zst") if match else ""


def _raw_stream(source: Source) -> BinaryIO:
    if source.data is not None:
        return io.BytesIO(source.data)
    if source.path is None:
        raise SourceError(source.name, "neither a file nor text")
    compression = _compression(source.path)
    # closed by the caller, who gets it as the stream
    file = open(source.path, "rb", buffering=0 if compression else 1 << 16)  # noqa: SIM115
    if not compression:
        return file
    magic = file.read(4)
    file.seek(0)
    if compression == "gz" and magic[:2] == b"\x1f\x8b":
        return cast(BinaryIO, io.BufferedReader(_Decompressed(_gzip(file), file), 1 << 16))
    if compression == "zst" and magic == b"\x28\xb5\x2f\xfd":
        return cast(BinaryIO, io.BufferedReader(_Decompressed(_zstd(file, source.name), file), 1 << 16))
    return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, file), 1 << 16))  # only named like one


def _gzip(file: Any) -> BinaryIO:
    library: Any = zlib
    with contextlib.suppress(ImportError):
        from isal import isal_zlib as library  # about twice as fast
    return cast(BinaryIO, _Gunzip(file, lambda: library.decompressobj(wbits=31)))


def _zstd(file: Any, name: str) -> BinaryIO:
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]  # Python >= 3.14

        return cast(BinaryIO, zstd.ZstdFile(file))
    except ImportError:
        pass
    try:
        import zstandard
    except ImportError:
        file.close()
        raise SourceError(name, "reading .zst needs `pip install zstandard` (or decompress it first)") from None
    return cast(BinaryIO, zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True))


@functools.lru_cache(maxsize=1)
def _decompression_errors() -> tuple[type[BaseException], ...]:
    errors: list[type[BaseException]] = [OSError, EOFError, zlib.error, ValueError]
    for module, name in (("zstandard", "ZstdError"), ("compression.zstd", "ZstdError"), ("isal.isal_zlib", "IsalError")):
        loaded = sys.modules.get(module)
        if loaded is not None and hasattr(loaded, name):
            errors.append(getattr(loaded, name))
    return tuple(errors)


class _Decompressed(io.RawIOBase):
    """Ends where the compressed data is cut or damaged: the part before is still a log."""

    def __init__(self, inner: BinaryIO, file: BinaryIO) -> None:
        self._inner, self._file, self._total = inner, file, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._inner.read(min(len(buffer), 1 << 16))
        except _decompression_errors() as error:
            if self._total == 0:
                raise OSError(f"damaged compressed file ({error})") from None
            return 0
        self._total += len(data)
        buffer[:len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


class _Gunzip:
    """Members of a .gz file one after the other; unlike `gzip`, it hands out all that can be
    read of a file that was cut."""

    def __init__(self, file: BinaryIO, make: Callable[[], Any]) -> None:
        self._file, self._make, self._inflate, self._input = file, make, make(), b""

    def read(self, size: int) -> bytes:
        while True:
            if not self._input:
                self._input = self._file.read(1 << 16)
                if not self._input:
                    return b""
            data: bytes = self._inflate.decompress(self._input, size)
            self._input = self._inflate.unconsumed_tail
            if self._inflate.eof:
                self._input = self._inflate.unused_data.lstrip(b"\0")  # padding between members
                self._inflate = self._make()
            if data:
                return data


class _Utf16(io.RawIOBase):
    """UTF-16 as UTF-8 (Windows PowerShell writes `>` redirections so)."""

    def __init__(self, inner: BinaryIO, encoding: str) -> None:
        self._inner = inner
        self._decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
        self._ready = b""
        self._first = True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            data = self._inner.read(1 << 15)
            text = self._decoder.decode(data, final=not data)
            if self._first and text:
                text, self._first = text.removeprefix("\ufeff"), False
            self._ready = text.encode("utf-8", "replace")
            if not data and not self._ready:
                return 0
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size

    def close(self) -> None:
        self._inner.close()
        super().close()


class Chained(io.RawIOBase):
    """Bytes already read, then the rest of a pipe."""

    def __init__(self, data: bytes, rest: BinaryIO) -> None:
        self._data, self._rest = io.BytesIO(data), rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._data.read(len(buffer)) or self._rest.read(min(len(buffer), 1 << 16))
        buffer[:len(data)] = data
        return len(data)


def _peek(stream: BinaryIO, size: int) -> bytes:
    if isinstance(stream, io.BufferedReader):
        return stream.peek(size)[:size]
    data = stream.read(size)
    stream.seek(0)
    return data


def _utf16(head: bytes) -> str:
    """The encoding's name, when a byte order mark or NULs at every other byte say so."""
    if head.startswith(codecs.BOM_UTF16_LE):
        return "utf-16-le"
    if head.startswith(codecs.BOM_UTF16_BE):
        return "utf-16-be"
    if len(head) >= 16:
        even, odd = head[0::2].count(0) * 2 / len(head), head[1::2].count(0) * 2 / len(head)
        if odd > 0.7 and even < 0.1:
            return "utf-16-le"
        if even > 0.7 and odd < 0.1:
            return "utf-16-be"
    return ""


def reason(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file or directory"
    if isinstance(error, PermissionError):
        return "permission denied"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error).splitlines()[0] if str(error) else type(error).__name__
