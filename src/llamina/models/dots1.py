"""dots1, BailingMoE 2 (Ling 2) and Hunyuan 3: qwen3 with shared experts; the others are chosen by sigmoid and bias."""

from llamina.models import qwen3


class Model(qwen3.Model):
    def setup(self) -> None:
        super().setup()
        self.routing = self.config.routing("sigmoid")
