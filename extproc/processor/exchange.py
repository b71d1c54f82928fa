"""The order of messages in one exchange: bytes in, bytes out, whatever carries them.

In the recommended chain Envoy sends one message, the whole request body, and then holds the stream open
until the response has ended. In the portable one it sends the request headers first and the response headers
later. Both are served by the same code, which looks at the kind of each message, never at its position.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from extproc.admission.service import Grant, HandedOver, Shed
from extproc.dialects import Dialect, recognise
from extproc.domain.errors import BadRequest, ProtocolViolation
from extproc.processor import messages
from extproc.processor.gate import Gate, Passage
from extproc.processor.messages import Head, Message, Phase
from extproc.processor.reading import Reading
from extproc.processor.record import ExchangeObserver, Record, consent, metadata, response_headers

_REPLAYED_BYTES = 60_000
"""Envoy keeps up to 64 KiB of a stream to replay it to another server (measured; `docs/envoy.md`)."""


class Transport(Protocol):
    """Carries the messages of one exchange."""

    async def receive(self) -> bytes | None:
        """Return the next message, or None when Envoy has no more."""
        ...

    async def send(self, data: bytes) -> None:
        """Send a reply."""
        ...


class Exchange:
    """Leads one HTTP exchange from its request to the end of its response."""

    def __init__(self, gate: Gate, transport: Transport, observer: ExchangeObserver) -> None:
        self._gate = gate
        self._observer = observer
        self._transport = transport
        self._head: Head | None = None
        self._may_be_replayed = True
        self._reading: Reading | None = None

    async def run(self) -> None:
        """Serve the stream to its end. Every message that was received has been answered then.

        Raises:
            HandedOver: end the stream without an answer, so that Envoy tries another server.
            ProtocolViolation: a message has no place here.
        """
        while (message := await self._receive()) is not None:
            if message.phase is Phase.REQUEST_BODY:
                await self._meet_body(message)
                return
            if message.phase is Phase.REQUEST_HEADERS:
                self._head = message.head
                self._may_be_replayed = False  # the reply to the headers commits the stream to this server
            await self._transport.send(messages.proceed(message.phase))
            if message.end_of_stream:
                return  # no body will come: nothing to admit

    async def _receive(self) -> Message | None:
        data = await self._transport.receive()
        return None if data is None else messages.parse(data)

    async def _meet_body(self, message: Message) -> None:
        head = message.head or self._head
        if head is None:
            raise ProtocolViolation("a request body came with neither headers nor request_attributes")
        endpoint = recognise(head.path)
        record = Record(self._observer, self._gate.identity.priority_class(head.headers))
        try:
            passage = await self._gate.consider(endpoint, head, message.body) if endpoint else None
            if passage is None:
                record.unmanaged()
                await self._transport.send(messages.proceed(Phase.REQUEST_BODY, metadata=consent(head)))
                return
            record.concerns(passage)
            can_move = self._may_be_replayed and len(message.body) < _REPLAYED_BYTES
            async with passage.admission.admit(
                passage.request,
                passage.estimate,
                can_move=can_move,
                expectation=passage.forecast.expectation,
            ) as grant:
                record.admitted(grant)
                await self._go_on(passage, grant)
        except HandedOver:
            record.handed_over()
            raise
        except (BadRequest, Shed) as error:
            shedding = record.refused(error)
            dialect = endpoint.dialect if endpoint else Dialect.OPENAI
            await self._transport.send(messages.refuse(shedding, dialect, record.refusal_headers()))
        finally:  # the stream may have been cancelled: no await here
            record.close()
            ended = self._reading.end() if self._reading else None
            if ended is not None:
                self._gate.on_ended(ended)

    async def _go_on(self, passage: Passage, grant: Grant) -> None:
        """Let the request pass and stay until its response has ended."""
        headers = response_headers(passage, grant)
        if passage.reads_response:
            self._reading = Reading(passage)
        told = metadata(passage, grant)
        await self._transport.send(messages.proceed(Phase.REQUEST_BODY, metadata=told, body=passage.body))
        while (message := await self._receive()) is not None:
            await self._transport.send(self._answer(message, headers))

    def _answer(self, message: Message, headers: Mapping[str, str]) -> bytes:
        """Return the answer to a message of the response, after reading what there is to read in it."""
        if message.phase is Phase.RESPONSE_HEADERS:
            wants_body = self._reading is not None and self._reading.begin(message)
            return messages.proceed(message.phase, set_headers=headers, reads_response=wants_body)
        if message.phase is Phase.RESPONSE_BODY and self._reading is not None:
            seen = self._reading.read(message.body, is_last=message.end_of_stream)
            return messages.proceed(message.phase, body=None if seen == message.body else seen)
        return messages.proceed(message.phase)
