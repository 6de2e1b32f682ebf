"""A Ray that does nothing but what it is told, to see what the engine asks of it."""

from types import SimpleNamespace

from adadecay.lab.engines import Finished, Started


class FakeRayError(Exception):
    """Stands for all errors of Ray's."""


class FakeSetupError(FakeRayError):
    """A worker's environment could not be made."""


class Stream:
    """What a task sends: messages, or an error in the place of one."""

    def __init__(self, job, messages):
        self.job = job
        self.messages = list(messages)
        self.withdrawn = False

    def __next__(self):
        if not self.messages:
            raise StopIteration
        return self.messages.pop(0)


def whole(job):
    """The messages of a trial that goes well."""
    trial = job.trial.id
    return [(Started(trial, 0, 0, {}),), (Finished(trial, "done"),)]


class FakeRay:
    """Ray with these nodes; ``tell`` makes the messages of a job.

    The caller has started it, so that the engine only joins; ``address`` is where its
    head is said to be.
    """

    exceptions = SimpleNamespace(
        RayError=FakeRayError, RuntimeEnvSetupError=FakeSetupError
    )

    def __init__(self, address, *nodes, tell=whole):
        self.address, self.tell = address, tell
        self.all_nodes = [
            {"NodeID": f"node {n}", "Alive": True, "Resources": node}
            for n, node in enumerate(nodes)
        ]
        self.options, self.streams = {}, []
        self.most = self.rung = self.looks = 0
        self.running = None  # how many of the tasks have begun; None: all

    def is_initialized(self):
        return True

    def get_runtime_context(self):
        return SimpleNamespace(gcs_address=self.address, get_node_id=lambda: "node 0")

    def cluster_resources(self):
        return {}

    def nodes(self):
        self.looks += 1
        return self.all_nodes

    def get(self, message):
        if isinstance(message, Exception):
            raise message
        return message

    def wait(self, streams, *, num_returns, timeout):
        self.most = max(self.most, len(streams))
        count = min(num_returns, self.running or num_returns)
        return streams[:count], streams[count:]

    def cancel(self, stream):
        stream.withdrawn = True

    def remote(self, **options):
        """Make a task of a function, and an actor of the bell."""

        def make(thing):
            if thing.__name__ == "StopSignal":
                methods = {"send": self._ring, "wait": lambda: "bell"}
                actor = {k: SimpleNamespace(remote=v) for k, v in methods.items()}
                return SimpleNamespace(remote=lambda: SimpleNamespace(**actor))
            self.options = options
            task = SimpleNamespace(remote=self._start)
            return SimpleNamespace(options=lambda **_: task)

        return make

    def _ring(self):
        self.rung += 1

    def _start(self, job, settings, slot, bell):
        stream = Stream(job, self.tell(job))
        self.streams.append(stream)
        return stream
