# SPDX-License-Identifier: LGPL-2.1-or-later
"""
glakectl export: the figures of all processes that can be watched as one text for Prometheus, which prometheus_client
reads, merges and serves. They are asked when somebody asks, side by side. A process whose text is none that
Prometheus would take is not up, and takes nothing from the others.
"""

import concurrent.futures
import ipaddress
import re
import signal
import socket
import socketserver
import sys
import threading
import wsgiref.simple_server

from . import process, tool

HELP = """\
usage: glakectl export [OPTION]... [PID|PROGRAM]...

Serves what Prometheus scrapes, of all processes of this user that run with glake and
rpc.socket=yes, or of those named, at http://localhost:9474/metrics, until it is
interrupted. It needs prometheus_client.

  -p, --port N           the port; 0 for any that is free (9474)
  -a, --address ADDRESS  in place of 127.0.0.1 and ::1
  -P, --public           the address may be another than this host's own
  -o, --once             print the text, and serve nothing
  -h, --help             show this help
"""
PORT = 9474
SILENT = 5  # seconds that a client may say nothing
AT_ONCE = 32  # processes that are asked side by side
CLIENTS = 64  # that are connected at an address
CONTEXTS = 64  # GLAKE_CONTEXT_MAX
OF_ONE = 1024  # metrics of one process; the library has some 60
LABEL = re.compile("(?!__)[a-zA-Z_][a-zA-Z0-9_]*")  # prometheus_client reads others too


def library():
    try:
        import prometheus_client
        import prometheus_client.parser
    except ImportError:
        raise tool.Failure("prometheus_client is not installed: apt install python3-prometheus-client, or pip install "
                           "prometheus_client") from None
    return prometheus_client


def _ask(pid):
    """(program, metrics or None) of a process; None for one that has ended."""
    name, texts = "", []
    try:
        about = process.ask(pid, "info")
        if not isinstance(about, dict):
            raise process.Refused("it says what it was not asked")
        name = "".join(c if c.isprintable() and c not in '"\\' else "?" for c in str(about.get("program", "")))[:63]
        contexts = [row.get("context") for row in (about.get("contexts") or ())[:CONTEXTS] if isinstance(row, dict)]
        for number in contexts if len(contexts) > 1 else [None]:  # an answer has a most
            try:
                texts.append(process.ask(pid, "metrics", **({} if number is None else {"context": number})))
            except process.Refused as refused:
                if refused.code != -32602:  # one that has closed a context meanwhile has answered as well
                    raise
        parse = library().parser.text_string_to_metric_families
        metrics = [metric for text in texts for metric in parse(text)]
        if not all(map(LABEL.fullmatch, {label for metric in metrics for sample in metric.samples for label in sample.labels})):
            raise ValueError("a label that is none")
        return name, metrics
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    except (OSError, process.Refused, ValueError, KeyError, IndexError, TypeError, AttributeError):
        return name, None


BROKER = (  # of each GPU: the metric, its help, what glaked calls it
    ("total_bytes", "Bytes that the broker gives.", "total"), ("free_bytes", "Bytes that nobody has leave for.", "free"),
    ("held_bytes", "Bytes that clients have leave for.", "held"),
    ("published_bytes", "Bytes of published contents that are no client's.", "published"),
    ("guaranteed_bytes", "Free bytes that are kept for guarantees.", "guaranteed"),
    ("waiting", "Requests in line.", "waiting"), ("asks_total", "Times that a client was asked to give.", "asks"),
    ("stalls_total", "Times that one did not answer.", "stalls"), ("refusals_total", "Requests refused.", "refusals"))


def _number(value):
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0


def _rows(of, name):
    found = of.get(name)
    return [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []


def _broker(told):
    """Its metrics: of each GPU, of each client there, and what contents that exist once spare."""
    Metric = library().Metric
    gpus = [(str(gpu.get("gpu")), gpu) for gpu in _rows(told, "gpus")]
    for name, text, key in BROKER:
        family = Metric(f"glake_broker_{name.removesuffix('_total')}", text, "counter" if name.endswith("_total") else "gauge")
        for uuid, gpu in gpus:
            family.add_sample(f"glake_broker_{name}", {"gpu": uuid}, _number(gpu.get(key)))
        yield family
    spared = Metric("glake_broker_spared_bytes", "Bytes that more than one user of contents, or of equal pages, would hold without them.", "gauge")
    held = Metric("glake_broker_client_held_bytes", "Bytes that a client has leave for.", "gauge")
    for uuid, gpu in gpus:
        spared.add_sample("glake_broker_spared_bytes", {"gpu": uuid}, _number(gpu.get("saved")) + sum(
            _number(row.get("bytes")) * max(_number(row.get("users")) - 1, 0) for row in _rows(gpu, "contents")))
        for row in _rows(gpu, "clients"):
            held.add_sample("glake_broker_client_held_bytes", {
                "gpu": uuid, "pid": str(row.get("pid")), "program": str(row.get("name"))}, _number(row.get("held")))
    yield spared
    yield held


class Collector:
    """All processes, or those that are named, whenever somebody asks."""

    def __init__(self, names):
        self.names = names

    def collect(self):
        pids = process.everyone()
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            found = [(pid, *said) for pid, said in zip(pids, pool.map(_ask, pids)) if said]
        found = [row for row in found if not self.names or str(row[0]) in self.names or row[1] in self.names]
        Metric = library().Metric
        up = Metric("glake_up", "Whether the process answers at its socket.", "gauge")
        families = {}
        for pid, program, metrics in found:
            labels = {"pid": str(pid), "program": program}
            up.add_sample("glake_up", labels, float(metrics is not None))
            names = {metric.name for metric in metrics or ()}
            for metric in metrics if metrics and len(names) <= OF_ONE else ():
                samples = [sample for sample in metric.samples if not labels.keys() & sample.labels.keys()]
                if not metric.name.startswith("glake_") or metric.name == "glake_up" or not samples:
                    continue
                family = families.setdefault(metric.name, {}).setdefault(metric.type, (set(), Metric(
                    metric.name, metric.documentation, metric.type)))
                family[0].add(pid)
                for sample in samples:
                    family[1].add_sample(sample.name, {**labels, **sample.labels}, sample.value)
        yield up
        told = None if self.names else process.broker()
        yield from _broker(told) if told else ()
        for kinds in families.values():  # a metric has the type that most say
            yield max(kinds.values(), key=lambda kind: len(kind[0]))[1]


class _Handler(wsgiref.simple_server.WSGIRequestHandler):
    timeout = SILENT

    def log_message(self, *_):
        pass


def _application(collector, is_local):
    """What is answered: the text at /metrics, to those who speak to this host."""
    client = library()
    registry = client.CollectorRegistry()
    registry.register(collector)
    metrics = client.make_wsgi_app(registry)

    def answer(environ, start):
        host = environ.get("HTTP_HOST", "localhost")
        name = host[1:].split("]")[0] if host.startswith("[") else host.rsplit(":", 1)[0]
        if environ["REQUEST_METHOD"] != "GET":
            status, more = "405 Method Not Allowed", [("Allow", "GET")]
        elif is_local and name != "localhost" and not _is_own(name):
            status, more = "403 Forbidden", []
        elif environ["PATH_INFO"] != "/metrics":
            status, more = "404 Not Found", []
        else:
            environ["QUERY_STRING"] = ""
            return metrics(environ, start)
        start(status, [("Content-Type", "text/plain"), *more])
        return [status.encode() + b"\n"]

    return answer


def _is_own(text):
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return False


def _serve(address, port, collector):
    """A server in threads of its own."""
    class Server(socketserver.ThreadingMixIn, wsgiref.simple_server.WSGIServer):
        address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        daemon_threads = True
        request_queue_size = 64
        places = threading.Semaphore(CLIENTS)

        def process_request(self, request, client_address):
            if self.places.acquire(blocking=False):
                super().process_request(request, client_address)
            else:
                self.shutdown_request(request)

        def process_request_thread(self, request, client_address):
            try:
                super().process_request_thread(request, client_address)
            finally:
                self.places.release()

        def server_bind(self):  # no name is looked up
            socketserver.TCPServer.server_bind(self)
            self.server_name, self.server_port = address, self.socket.getsockname()[1]
            self.setup_environ()

        def handle_error(self, *_):
            pass  # who goes away while he is answered

    server = Server((address, port), _Handler)
    server.set_app(_application(collector, _is_own(address)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def run(words):
    """The command; its exit status."""
    given, names = tool.options("export", HELP, words, fewest=0, most=1 << 20)
    port, address = given.get("port", [str(PORT)])[-1], given.get("address", [None])[-1]
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise tool.usage("export", f"--port takes a number from 0 to 65535, not '{port}'")
    try:
        own = address is None or ipaddress.ip_address(address).is_loopback
    except ValueError:
        raise tool.usage("export", f"--address takes an address as 127.0.0.1 or ::1, not '{address}'") from None
    if not own and "public" not in given:
        raise tool.usage("export", f"{address} is reached from other hosts, who are asked for no password; --public says "
                                   "that they may")
    client = library()
    collector = Collector(names)
    if "once" in given:
        registry = client.CollectorRegistry()
        registry.register(collector)
        sys.stdout.write(client.generate_latest(registry).decode())
        return 0
    port = int(port)
    signal.pthread_sigmask(signal.SIG_BLOCK, tool.STOPS)  # before there are threads, which take it over
    for place in [address] if address else ["127.0.0.1", "::1"]:
        try:
            port = _serve(place, port, collector).server_port
        except OSError as error:
            if place == "::1":  # a host without IPv6
                continue
            raise tool.Failure(f"{place} port {port} cannot be served: {error.strerror}") from error
        host = f"[{place}]" if ":" in place else place
        if place != "::1" or address:
            tool.say(f"glakectl: serving http://{host}:{port}/metrics")
    signal.sigwait(tool.STOPS)
    return 0


if __name__ == "__main__":
    tool.main("export", run)
