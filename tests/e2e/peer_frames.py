"""What gateways and workers say to a broker (link.h, event_list.h), for programs that play them."""
import json
import select
import socket
import struct
import sys


class Peer:
    """A connection that speaks the frames of link.h."""

    def __init__(self, **hello):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(sys.argv[1])
        self.data = b""
        self.send(t="hello", pid=1, **hello)

    def send(self, **message):
        self.send_frame(json.dumps(message).encode())

    def send_frame(self, text):
        self.socket.sendall(struct.pack("<I", len(text)) + text)

    @staticmethod
    def events_of(data):
        """The events of a list (event_list.h)."""
        while data:
            size, kind, id_length, _ = struct.unpack("<IcBI", data[:10])
            id, rest = data[10 : 10 + id_length].decode(), data[11 + id_length : 4 + size]
            yield {"id": id, "e": "text", "i": rest[0], "text": rest[1:].decode()} if kind == b"p" else json.loads(rest)
            data = data[4 + size :]

    @classmethod
    def message_of(cls, frame):
        if frame[0] == 1:
            return {"t": "events", "events": [*cls.events_of(frame[1:])]}
        if frame[0] != 2:
            return json.loads(frame)
        end = 5 + struct.unpack("<I", frame[1:5])[0]
        message = json.loads(frame[5:end])
        message.get("task", message)["request"] = frame[end:].decode()
        return message

    def take(self, seconds=0.0):
        """Messages that have come, without states of the broker, of which the last one is kept."""
        out = []
        while select.select([self.socket], [], [], seconds)[0]:
            piece = self.socket.recv(1 << 20)
            if not piece:
                break
            self.data += piece
            seconds = 0.0
        while len(self.data) >= 4 and len(self.data) >= 4 + struct.unpack("<I", self.data[:4])[0]:
            length = struct.unpack("<I", self.data[:4])[0]
            frame = self.data[4 : 4 + length]
            message = self.message_of(frame)
            self.data = self.data[4 + length :]
            if message["t"] == "state":
                self.state = message
            else:
                out.append(message)
        return out

    def close(self):
        self.socket.close()


count = 0


class Worker(Peer):
    def __init__(self, version, slots=4, model="m", **more):
        global count
        count += 1
        self.version = version
        hello = {"model": model, "version": version, "slots": slots, "info": {"context": 8}, **more}
        super().__init__(role="worker", name=f"w{count}", **hello)
        self.jobs = []

    def work(self, seconds=0.05):
        self.jobs += [m for m in self.take(seconds) if m["t"] == "work"]
        return self.jobs

    def tell(self, job, *events):
        frame = b"\1"
        for event in events:
            piece = event["e"] == "text"
            whole = json.dumps({"id": job["id"], **event}).encode()
            rest = bytes([event["i"]]) + event["text"].encode() if piece else whole
            kind = {"text": b"p", "begin": b"b", "result": b"r", "end": b"e", "error": b"x"}[event["e"]]
            id = job["id"].encode() + b"\0"
            frame += struct.pack("<IcBI", 6 + len(id) + len(rest), kind, len(id) - 1, job["attempt"]) + id + rest
        self.send_frame(frame)

    def answer(self, text="a"):
        for job in self.jobs:
            self.tell(job, {"e": "text", "i": 0, "text": text}, {"e": "end"})
        self.jobs = []
