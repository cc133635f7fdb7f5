"""A mosec server at its best settings; MODEL_DIRECTORY names the model, arguments are mosec's own.

The model is a deployable directory of lepa, so that both serve the same function. Batches of up to 32, for which mosec
waits 2 ms: the settings that served it best in a sweep.
"""

import os
from pathlib import Path

import numpy as np
from mosec import Server, Worker

from lepa.serving.model_directory import load

MAX_BATCH = 32
MAX_WAIT_MS = 2


class Model(Worker):
    """Answers {"input": [numbers]}."""

    def __init__(self):
        super().__init__()
        self.predict = load(Path(os.environ["MODEL_DIRECTORY"]))

    def forward(self, data):
        return [{"output": float(output)} for output in self.predict(np.array([one["input"] for one in data]))]


if __name__ == "__main__":
    server = Server()
    server.append_worker(Model, num=1, max_batch_size=MAX_BATCH, max_wait_time=MAX_WAIT_MS)
    server.run()
