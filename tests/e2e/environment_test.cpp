#include "tests/e2e/node.hpp"
#include "tests/http/web_socket_client.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

#include <csignal>
#include <fstream>
#include <sstream>

using namespace insula::test;

namespace {

std::string text_of(const std::string& path) {
  std::ostringstream all;
  all << std::ifstream{path}.rdbuf();
  return all.str();
}

/// An authority, and what it has issued for a server on this host, as programs want it: with the
/// name where they look for it.
class site {
public:
  explicit site(const std::string& name) {
    output_of({"openssl",
               "req",
               "-x509",
               "-newkey",
               "ec",
               "-pkeyopt",
               "ec_paramgen_curve:P-256",
               "-nodes",
               "-days",
               "2",
               "-subj",
               "/CN=" + name,
               "-addext",
               "basicConstraints=critical,CA:TRUE",
               "-addext",
               "keyUsage=critical,keyCertSign",
               "-keyout",
               at("ca.key"),
               "-out",
               authority()});
    output_of({"openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
               "-subj", "/CN=localhost", "-keyout", at("key"), "-out", at("request")});
    std::ofstream{at("names")} << "subjectAltName=DNS:localhost\n";
    output_of({"openssl", "x509", "-req", "-in", at("request"), "-CA", authority(), "-CAkey",
               at("ca.key"), "-days", "2", "-extfile", at("names"), "-out", at("certificate")});
  }

  std::string authority() const { return at("authority.pem"); }

  /// Serves "it is there" at https://localhost:8443/, in a sandbox.
  void serve(const node& it, const std::string& id) const {
    const std::string file = "/v1/sandbox/" + id + "/file/workspace/site.pem";
    REQUIRE(it.ask("PUT", file, text_of(at("certificate")) + text_of(at("key"))).status == 200);
    REQUIRE(it.sh(id,
                  "mkdir -p site && echo it is there > site/index.html && cat > serve.py <<'END'\n"
                  "import functools, http.server, ssl\n"
                  "c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)\n"
                  "c.load_cert_chain('/workspace/site.pem')\n"
                  "h = functools.partial(http.server.SimpleHTTPRequestHandler,\n"
                  "                      directory='/workspace/site')\n"
                  "s = http.server.ThreadingHTTPServer(('127.0.0.1', 8443), h)\n"
                  "s.socket = c.wrap_socket(s.socket, server_side=True)\n"
                  "s.serve_forever()\nEND\n"
                  "setsid python3 serve.py >/dev/null 2>&1 &")
              .exit_code == 0);
    REQUIRE(it.ask("GET", "/v1/sandbox/" + id + "/port/8443/ready").status == 200);
  }

private:
  std::string at(const std::string& name) const { return (where_ / name).string(); }

  temp_dir where_;
};

/// Of each program that gets the page, its name.
std::string who_trusts(const node& it, const std::string& id) {
  constexpr auto url = "https://localhost:8443/";
  std::string found;
  const auto script = [&](const std::string& text) { return it.sh(id, text).out; };
  const std::string page = "it is there\n";
  if (script(std::string{"curl -s --noproxy '*' "} + url) == page)
    found += "curl ";
  if (script(std::string{"wget -q --no-proxy -O - "} + url) == page)
    found += "wget ";
  if (script(std::string{"python3 -c \"import urllib.request as r; print(r.urlopen('"} + url +
             "').read().decode(), end='')\" 2>/dev/null") == page)
    found += "python3 ";
  if (script(std::string{"node -e \"require('https').get('"} + url +
             "', r => r.pipe(process.stdout)).on('error', () => {})\"") == page)
    found += "node ";
  // It is no repository, which git says only once it trusts the server.
  if (script(std::string{"git ls-remote "} + url + " 2>&1").find("not found") != std::string::npos)
    found += "git ";
  if (script(
        std::string{"pip download --retries 0 --no-cache-dir --disable-pip-version-check -i "} +
        url + " nothing 2>&1")
        .find("CERTIFICATE_VERIFY_FAILED") == std::string::npos)
    found += "pip ";
  return found;
}

} // namespace

TEST_CASE("variables of the node are in every command, session and terminal", "[environment]") {
  node it{"sandbox:\n  env:\n    NPM_CONFIG_REGISTRY: https://npm.example.com/\n"
          "    PIP_INDEX_URL: https://pypi.example.com/simple\n"
          "    http_proxy: http://proxy.example.com:3128\n    TZ: Europe/Berlin\n"
          "    WORDS: \"two words, an = and a \\\"\"\n    EMPTY: \"\"\n"
          "    LINES_: \"one\\ntwo\"\n"};
  const std::string look = "echo \"$WORDS|${EMPTY-unset}|$LINES_|$TZ|$http_proxy\"";
  const std::string all =
    "two words, an = and a \"||one\ntwo|Europe/Berlin|http://proxy.example.com:3128\n";
  CHECK(it.sh("a", look).out == all);
  CHECK(it.sh("a", "npm config get registry").out == "https://npm.example.com/\n");
  CHECK(it.sh("a", "pip config list").out.find("https://pypi.example.com/simple") !=
        std::string::npos);
  CHECK(it.sh("a", "echo $HOME $USER; command -v python3").out ==
        "/home/sandbox sandbox\n/usr/bin/python3\n");
  // A session, and one whose client has said something itself.
  const auto in_session = [&](const std::string& name, const std::string& script) {
    const auto stream = http_ask(it.port(), "POST", "/v1/sandbox/a/exec",
                                 exec_body({"bash", "-c", script}), "Session-Id: " + name + "\r\n");
    return stream.body;
  };
  REQUIRE(it.ask("POST", "/v1/sandbox/a/session", R"({"id":"own","env":{"TZ":"UTC"}})").status ==
          200);
  REQUIRE(in_session("own", "echo \"$TZ $WORDS\" > own").find("\"exit_code\":0") !=
          std::string::npos);
  CHECK(it.sh("a", "cat own").out == "UTC two words, an = and a \"\n");
  REQUIRE(in_session("other", look + " > other").find("\"exit_code\":0") != std::string::npos);
  CHECK(it.sh("a", "cat other").out == all);
  web_socket_client terminal{it.port(), "/v1/sandbox/a/pty"};
  REQUIRE(terminal.head().status == 101);
  while (terminal.next().kind == frame_kind::binary) // Until it is ready.
    continue;
  terminal.type(look + " > screen; echo 'en'd.\n");
  terminal.until("end.");
  CHECK(it.sh("a", "cat screen").out == all);
  // OpenSandbox's, whose client may say more of its sandbox.
  const auto made = it.ask("POST", "/v1/sandboxes",
                           R"({"image":{"uri":"host"},"entrypoint":["tail","-f","/dev/null"],)"
                           R"("env":{"TZ":"UTC"},"resourceLimits":{}})");
  REQUIRE(made.status == 202);
  CHECK(it.sh(made.body.substr(7, 26), "echo $TZ $NPM_CONFIG_REGISTRY").out ==
        "UTC https://npm.example.com/\n");
  // The next server's hold from its start on, also for what it takes over.
  REQUIRE(it.stop(SIGTERM) == 0);
  it.configure("sandbox: {env: {WORDS: others}}");
  it.start();
  CHECK(it.sh("a", look).out == "others|unset|||\n");
}

TEST_CASE("an authority of the node's is trusted by programs in its sandboxes", "[environment]") {
  const site ours{"Of this node"}, theirs{"Of nobody"};
  node it{"sandbox: {ca_file: " + ours.authority() + "}"};
  ours.serve(it, "a");
  CHECK(who_trusts(it, "a") == "curl wget python3 node git pip ");
  CHECK(it.sh("a", "grep -c BEGIN $NODE_EXTRA_CA_CERTS").out == "1\n");
  CHECK(it.sh("a", "test $(grep -c BEGIN $REQUESTS_CA_BUNDLE) -gt 100 && ls -ld /etc").exit_code ==
        0);
  theirs.serve(it, "b");
  CHECK(who_trusts(it, "b").empty());
  // Others come with the next server, for sandboxes that start then.
  REQUIRE(it.stop(SIGTERM) == 0);
  it.configure("sandbox: {ca_file: " + theirs.authority() + "}");
  it.start();
  CHECK(who_trusts(it, "a") == "curl wget python3 node git pip ");
  theirs.serve(it, "c");
  CHECK(who_trusts(it, "c") == "curl wget python3 node git pip ");
  REQUIRE(it.stop(SIGINT) == 0);
  it.configure("");
  it.start();
  ours.serve(it, "a");
  CHECK(who_trusts(it, "a").empty());
  CHECK(it.sh("a", "env").out.find("_CA_") == std::string::npos);
}

TEST_CASE("a file that has no certificates stops the start, and says why", "[environment]") {
  node it;
  REQUIRE(it.stop(SIGTERM) == 0);
  const temp_dir where;
  const auto file = (where / "file").string();
  const auto refused = [&](const std::string& why) {
    it.configure("sandbox: {ca_file: " + file + "}");
    CHECK_THROWS(it.start());
    CHECK(it.log().find("sandbox.ca_file: " + file + ": " + why) != std::string::npos);
  };
  refused("cannot be read: No such file or directory");
  std::ofstream{file} << "nothing";
  refused("expected certificates in PEM, got none");
  output_of({"openssl", "genpkey", "-algorithm", "ed25519", "-out", file});
  refused("expected certificates in PEM and nothing else, got a \"PRIVATE KEY\" in block 1");
  it.configure("");
  it.start();
}
