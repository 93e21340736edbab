"""MiniMax M2: olmoe with experts chosen by sigmoid and bias, their weights normed."""

from llamina.models import olmoe


class Model(olmoe.Model):
    def setup(self) -> None:
        super().setup()
        self.routing = self.config.routing("sigmoid", normalize=True)
