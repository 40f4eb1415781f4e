# A web server for a sandbox, that listens on its loopback alone: previews_server.py <port>
import http.server
import os
import sys
import time


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, text):
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self):
        if self.path.startswith("/zeros/"):
            left = int(self.path[7:])
            self.send_response(200)
            self.send_header("Content-Length", str(left))
            self.end_headers()
            block = bytes(1 << 20)
            while left > 0:
                left -= self.wfile.write(block[:left])
        elif self.path == "/events":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for number in range(3):
                event = b"data: %d\n\n" % number
                self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
                while not os.path.exists("/workspace/go%d" % number):
                    time.sleep(0.01)
            self.wfile.write(b"0\r\n\r\n")
        elif self.path.startswith("/moved/"):  # As frameworks build an address: of Host, or of their own.
            host = {"host": self.headers["Host"], "own": "localhost:%s" % sys.argv[1]}[self.path[7:]]
            self.send_response(302)
            self.send_header("Location", "http://%s/there?a" % host)
            self.send_header("Refresh", "0; url=http://%s/there" % host)
            self.send_header("Content-Location", "/there")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path == "/hinted":
            self.wfile.write(b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n")
            while not os.path.exists("/workspace/go0"):
                time.sleep(0.01)
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.send_header("Trailer", "X-Sum")
            self.end_headers()
            while not os.path.exists("/workspace/go1"):
                time.sleep(0.01)
            self.wfile.write(b"2\r\nhe\r\n0\r\nX-Sum: 7\r\n\r\n")
        else:
            self.answer("%d %s for %s" % (os.getpid(), self.path, self.headers["X-Forwarded-For"]))

    def do_POST(self):
        left, seen = int(self.headers["Content-Length"]), 0
        while left > 0:
            block = self.rfile.read(min(left, 1 << 20))
            if not block:
                return
            left -= len(block)
            seen += block.count(b"x")
        self.answer(str(seen))


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 512


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
