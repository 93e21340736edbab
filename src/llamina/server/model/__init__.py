"""A model behind one small interface: in this process, or in a worker process spoken to in frames."""

from llamina.server.model.client import Model, ModelError
from llamina.server.model.frames import Chunk, ErrorInfo, ModelInfo
from llamina.server.model.local import LocalModel
from llamina.server.model.process import WorkerModel

__all__ = ["Chunk", "ErrorInfo", "LocalModel", "Model", "ModelError", "ModelInfo", "WorkerModel"]
