"""What the OpenAPI document says of forms, queries and `/admin`."""

from typing import Any

from protected_server import ADMIN, protected
from starlette.routing import Route

from llamina.server.app import APIS
from llamina.server.openai.files import FIELDS
from llamina.server.openai.transcriptions import TranscriptionRequest
from llamina.server.openapi import document, queries_of

PATHS: dict[str, Any] = document(
    route for api in APIS for route in api.routes if isinstance(route, Route) and route.include_in_schema
)["paths"]


def test_forms_are_told_with_their_file() -> None:
    for path, fields in (("/v1/files", FIELDS), ("/v1/audio/transcriptions", TranscriptionRequest.__struct_fields__)):
        (form,) = PATHS[path]["post"]["requestBody"]["content"].items()
        assert form[0] == "multipart/form-data"
        assert set(form[1]["schema"]["properties"]) == {"file", *fields} and form[1]["schema"]["required"] == ["file"]
    assert "text/event-stream" in PATHS["/v1/audio/transcriptions"]["post"]["responses"]["200"]["content"]
    assert "requestBody" not in PATHS["/v1/batches/{id}/cancel"]["post"]


def test_queries_have_types() -> None:
    async def handler(request: Any) -> Any:
        return whole(request, "n", 1), truth(request, "all"), request.query_params.get("name")  # type: ignore[name-defined] # noqa: F821

    assert {name: kind["type"] for name, kind in queries_of(handler).items()} == {
        "n": "integer",
        "all": "boolean",
        "name": "string",
    }
    listed = {one["name"]: one["schema"]["type"] for one in PATHS["/v1/files"]["get"]["parameters"]}
    assert listed == {"after": "string", "before": "string", "limit": "integer", "order": "string"}


def test_admin_has_a_document_of_its_own() -> None:
    with protected(admin_key=ADMIN) as server:
        assert server.manage("/admin/openapi.json").status_code == 401
        found = server.manage("/admin/openapi.json", key=ADMIN).json()
        assert server.ask("/openapi.json", key=ADMIN).json()["paths"] == PATHS
    body = found["paths"]["/admin/models/load"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    fields = found["components"]["schemas"][body["$ref"].rpartition("/")[2]]["properties"]
    assert {"id", "path", "quant", "context"} <= set(fields) and all(
        path.startswith("/admin/") for path in found["paths"]
    )
