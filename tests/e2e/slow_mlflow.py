"""A stand-in for an MLflow server whose answers get lost: slow_mlflow.py LOG FAULT. The first creation of a run is done, but
its answer is never sent (FAULT lost), or it is done only when the next one is (FAULT late). Prints its port; the log
has a line for each run when a run ends: ID, status, life."""
import http.server
import json
import sys
import threading

log, fault = sys.argv[1:]
runs, late, lock, asked = {}, [], threading.Lock(), []


def save():
    with open(log, "w", encoding="utf-8") as file:
        file.writelines(f"{i} {r['status']} {r['life']}\n" for i, r in runs.items())


class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = json.loads(body) if body else {}
        reply = {}
        with lock:
            name = self.path.partition("mlflow/")[2].partition("?")[0]
            if name == "experiments/get-by-name":
                reply = {"experiment": {"experiment_id": "1"}}
            elif name == "runs/create":
                asked.append(1)
                run = {"status": "RUNNING", "life": "active", "tags": {t["key"]: t["value"] for t in request["tags"]}}
                if len(asked) == 1 and fault == "late":
                    late.append(run)
                else:
                    for r in late + [run]:
                        runs[f"run{len(runs)}"] = r
                    late.clear()
                save()
                if len(asked) == 1:
                    self.close_connection = True
                    return
                reply = {"run": {"info": {"run_id": f"run{len(runs) - 1}"}}}
            elif name == "runs/search":
                key = request["filter"].split("'")[1]
                assert request["filter"] == f"tags.`banyan.run` = '{key}'", request
                reply = {"runs": [{"info": {"run_id": i}} for i, r in runs.items()
                                  if r["life"] == "active" and r["tags"].get("banyan.run") == key]}
            elif name == "runs/delete":
                runs[request["run_id"]]["life"] = "deleted"
                save()
            elif name == "runs/update":
                runs[request["run_id"]]["status"] = request["status"]
                save()
        data = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = answer

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
print(server.server_port, flush=True)
server.serve_forever()
