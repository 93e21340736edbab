"""OpenTelemetry traces of requests, sent by OTLP; the packages are the extra `otel`."""

from typing import Any, Protocol

from llamina import __version__
from llamina.errors import RequestError


class Span(Protocol):
    """A request that is traced."""

    def end(self, facts: dict[str, Any]) -> None: ...


class Tracing(Protocol):
    """What traces are made by."""

    def start(self, parent: bytes | None) -> Span: ...

    def close(self) -> None: ...


def open_tracing(endpoint: str) -> Tracing | None:
    """Traces to an endpoint such as http://127.0.0.1:4318; None without one.

    Raises RequestError if OpenTelemetry is not installed.
    """
    if not endpoint:
        return None
    try:
        return _OpenTelemetry(endpoint)
    except ImportError as error:
        message = f"otel is {endpoint!r} and {error.name} is not installed: pip install 'llamina[otel]'"
        raise RequestError(message, "otel") from error


class _OpenTelemetry:
    def __init__(self, endpoint: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        resource = Resource.create({"service.name": "llamina", "service.version": __version__})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=endpoint.rstrip("/") + "/v1/traces")
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("llamina", __version__)
        self._propagator = TraceContextTextMapPropagator()

    def start(self, parent: bytes | None) -> Span:
        """A span inside the client's, if it sends a `traceparent`."""
        from opentelemetry.trace import SpanKind

        carrier = {"traceparent": parent.decode("latin-1")} if parent is not None else {}
        span = self._tracer.start_span("request", self._propagator.extract(carrier), SpanKind.SERVER)
        return _Request(span)

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()


class _Request:
    def __init__(self, span: Any) -> None:
        self._span = span

    def end(self, facts: dict[str, Any]) -> None:
        from opentelemetry.trace import StatusCode

        names = {
            "method": "http.request.method",
            "route": "http.route",
            "status": "http.response.status_code",
            "request_id": "llamina.request_id",
            "model": "gen_ai.request.model",
            "prompt_tokens": "gen_ai.usage.input_tokens",
            "completion_tokens": "gen_ai.usage.output_tokens",
        }
        self._span.update_name(f"{facts['method']} {facts['route']}")
        for name, attribute in names.items():
            self._span.set_attribute(attribute, facts[name])
        if facts["status"] >= 500:
            self._span.set_status(StatusCode.ERROR)
        self._span.end()
