"""The server's socket."""

import asyncio
import socket

from llamina.server.listen import listen


def test_answers_are_not_held_back() -> None:
    """With Nagle's algorithm each answer on a kept connection would wait 40 ms for the client's acknowledgement."""

    async def scene() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            end: socket.socket = writer.get_extra_info("socket")
            found.set_result(end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with listen("127.0.0.1", 0) as listening:
            async with await asyncio.start_server(accepted, sock=listening):
                _, writer = await asyncio.open_connection(*listening.getsockname())
                writer.close()
                return await found

    assert asyncio.run(asyncio.wait_for(scene(), 20)) == 1
