#!/usr/bin/env python3
"""Delays TCP: takes the connections that a machine's firewall turns to it, and carries their bytes a while later.

It runs in a machine's namespace: delay.py PORT MARK MILLISECONDS JITTER. Its own connections carry the mark, by which
the firewall lets them go.
"""

import asyncio
import contextlib
import random
import socket
import struct
import sys

SO_ORIGINAL_DST = 80


async def carry(reader, writer, least, jitter):
    """Each piece leaves so much after it came, in order."""
    clock, pieces = asyncio.get_running_loop().time, asyncio.Queue(64)

    async def take():
        data = b"-"
        while data:
            data = await reader.read(65536)
            await pieces.put((clock() + least + random.random() * jitter, data))

    taking = asyncio.ensure_future(take())
    try:
        while True:
            when, data = await pieces.get()
            await asyncio.sleep(max(0, when - clock()))
            if not data:
                return
            writer.write(data)
            await writer.drain()
    finally:
        taking.cancel()
        with contextlib.suppress(OSError):
            writer.close()


async def serve(port, mark, least, jitter):
    async def connect(reader, writer):
        number, address = struct.unpack_from("!2xH4s", writer.get_extra_info("socket").getsockopt(
            socket.SOL_IP, SO_ORIGINAL_DST, 16))
        other = socket.socket()
        other.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark)
        other.setblocking(False)
        try:
            await asyncio.sleep(least)
            await asyncio.get_running_loop().sock_connect(other, (socket.inet_ntoa(address), number))
            far_reader, far_writer = await asyncio.open_connection(sock=other)
        except OSError:
            other.close()
            writer.close()
            return
        await asyncio.gather(carry(reader, far_writer, least, jitter), carry(far_reader, writer, least, jitter),
                             return_exceptions=True)

    server = await asyncio.start_server(connect, "0.0.0.0", port)
    print("ready", flush=True)
    await server.serve_forever()


port_, mark_, least_, jitter_ = map(int, sys.argv[1:])
asyncio.run(serve(port_, mark_, least_ / 1000, jitter_ / 1000))
