"""Handles commands of Roundel, with Python's standard library alone:
ROUNDEL_TOKEN=roundel_... python3 worker.py http://127.0.0.1:8462 default greet"""
import json, os, sys, threading, time, urllib.error, urllib.request

SERVER, NAMESPACE, QUEUES = sys.argv[1], sys.argv[2], sys.argv[3:]
LEASE = int(os.environ.get("LEASE_MS", "10000"))  # so long after a crash, others get the rest
HEADERS = {"Authorization": "Bearer " + os.environ["ROUNDEL_TOKEN"],
           "Content-Type": "application/json"}

class Lost(Exception):
    """The command is somebody else's by now: nothing that is said about it counts."""

def ask(what, **body):
    """Asks until there is an answer: repeating it does no harm."""
    request = urllib.request.Request(f"{SERVER}/api/v1/{NAMESPACE}/work/{what}",
                                     json.dumps(body).encode(), HEADERS)
    while True:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 409:
                raise Lost(json.load(error)["detail"]) from None
            if error.code not in (429, 503, 504):
                raise
        except OSError:
            pass  # the server is away; what it has acknowledged, it keeps
        time.sleep(0.5)

def greet(payload, key):
    """What is asked for. The key is the same if it has to be done again."""
    if not payload.get("name"):
        raise ValueError("nobody to greet")
    time.sleep(payload.get("seconds", 0))
    return {"text": f"Hello, {payload['name']}!", "key": key}

def handle(token, payload, key):
    done = threading.Event()
    def keep():
        while not done.wait(LEASE / 3000):
            try: ask("extend", token=token, lease_ms=LEASE)
            except Lost: return  # whoever answers is told, too
    threading.Thread(target=keep, daemon=True).start()
    try: return "complete", {"result": greet(payload, key)}
    except ValueError as wrong:  # the sender's business: not tried again
        return "fail", {"class": "business", "message": str(wrong)}
    except Exception as error:  # may pass: tried again, in the end parked
        return "fail", {"class": "transient", "message": repr(error)}
    finally: done.set()

worker = None
while True:
    claimed = ask("claim", queues=QUEUES, worker=worker, lease_ms=LEASE, wait_ms=20000)
    worker = claimed["worker"]
    for one in claimed["items"]:
        print(one["id"], "begun", flush=True)
        how, answer = handle(one["token"], one["payload"], one["idempotency_key"])
        try: print(one["id"], ask(how, token=one["token"], **answer)["state"], flush=True)
        except Lost: print(one["id"], "lost", flush=True)
