"""DeepSeek V1 and BailingMoE (Ling): llama with shared experts; the file says if the others' weights are normed."""

from llamina.models import llama


class Model(llama.Model):
    def setup(self) -> None:
        super().setup()
        self.routing = self.config.routing()
