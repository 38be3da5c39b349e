/* `coppice-agent event|inbox|heartbeat|done`: what a program in the sandbox of a run says of it, and hears. It is one HTTP call over the
   socket that leads to the daemon, with the token of the run; any HTTP client can do the same. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent.h"

#define SOCKET "/run/coppice/run.sock"
#define ANSWER_MAX (16u << 20)
#define INPUT_MAX (1u << 20)
#define TRIES 3

enum { exit_refused = 1, exit_usage = 64, exit_unavailable = 69 };

static const char usage[] =
    "Speaks of the run that this program is the agent of.\n"
    "\n"
    "  coppice-agent event TYPE [NAME=TEXT | NAME:=JSON]...   report an event; a single - reads its data from standard input\n"
    "  coppice-agent inbox [--after NUMBER] [--wait SECONDS]  fetch messages; those up to NUMBER count as delivered\n"
    "  coppice-agent heartbeat [STATUS]                       say that it is alive\n"
    "  coppice-agent done [--failed] [TEXT]                   say what came of the task\n"
    "\n"
    "  coppice-agent event agent.message text='I begin with the tests'\n"
    "  coppice-agent event agent.tool_result call_id=1 tool=make ok:=true output=\"$(make test 2>&1)\"\n"
    "\n"
    "The answer is JSON. Exit code: 0, 1 when the call was refused, 64 for a wrong command line, 69 when nobody answers.\n";

static int misused(const char *what) {
  fprintf(stderr, "coppice-agent: %s\n\n%s", what, usage);
  return exit_usage;
}

struct answer {
  int status;
  char *text;
  const char *body;
};

static int connect_out(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  int length = snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && length > 0 && (size_t)length < sizeof address.sun_path && connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
    return fd;
  if (fd >= 0) close(fd);
  return -1;
}

static bool send_all(int fd, const char *text, size_t length) {
  for (size_t sent = 0; sent < length;) {
    ssize_t n = send(fd, text + sent, length - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    sent += (size_t)n;
  }
  return true;
}

/* All that comes until the end, with a NUL behind it; NULL where it is more than `most`. */
static char *read_all(int fd, size_t most) {
  struct buffer text = {0};
  static char piece[65536];
  for (;;) {
    ssize_t n = read(fd, piece, sizeof piece);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    put_bytes(&text, piece, (size_t)n);
    if (text.length > most) {
      buffer_free(&text);
      return NULL;
    }
  }
  put_u8(&text, 0);
  return (char *)text.bytes;
}

/* False where there is no answer; it may have been heard all the same. */
static bool exchange(const char *socket_path, const char *request, size_t length, struct answer *answer) {
  int fd = connect_out(socket_path);
  if (fd < 0) return false;
  answer->text = send_all(fd, request, length) ? read_all(fd, ANSWER_MAX) : NULL;
  close(fd);
  const char *end = answer->text == NULL ? NULL : strstr(answer->text, "\r\n\r\n");
  if (end != NULL && sscanf(answer->text, "HTTP/1.%*1d %3d", &answer->status) == 1) {
    answer->body = end + 4;
    return true;
  }
  free(answer->text);
  return false;
}

static int call(const char *method, const char *path, const char *body, bool may_repeat) {
  const char *token = getenv("COPPICE_RUN_TOKEN");
  const char *given = getenv("COPPICE_RUN_SOCKET");
  const char *socket_path = given != NULL && *given != 0 ? given : SOCKET;
  if (token == NULL || *token == 0 || strpbrk(token, "\r\n") != NULL) {
    fprintf(stderr, "coppice-agent: COPPICE_RUN_TOKEN is not set: only programs of a run have one\n");
    return exit_unavailable;
  }
  char *request = NULL;
  size_t length = 0;
  FILE *file = open_memstream(&request, &length);
  if (file == NULL) return exit_unavailable;
  fprintf(file, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer %s\r\n", method, path, token);
  if (body != NULL) fprintf(file, "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
  else fputs("\r\n", file);
  fclose(file);
  struct answer answer = {0};
  bool answered = false;
  for (int tries = 0; tries < (may_repeat ? TRIES : 1) && !answered; tries++) {
    if (tries > 0) usleep(200000);
    answered = exchange(socket_path, request, length, &answer);
  }
  free(request);
  if (!answered) {
    fprintf(stderr, "coppice-agent: nobody answers at %s%s\n", socket_path,
            may_repeat ? "" : "; the event may have been written down all the same");
    return exit_unavailable;
  }
  bool accepted = answer.status >= 200 && answer.status < 300;
  fprintf(accepted ? stdout : stderr, "%s%s\n", accepted ? "" : "coppice-agent: ", answer.body);
  free(answer.text);
  return !accepted ? exit_refused : fflush(stdout) == 0 ? 0 : exit_unavailable;
}

/* ---- the four verbs ---- */

/* `name=text` and `name:=json` as members of an object. */
static bool print_member(FILE *file, const char *word) {
  const char *at = strchr(word, '=');
  if (at == NULL || at == word) return false;
  bool is_json = at[-1] == ':';
  size_t length = (size_t)(at - word) - (is_json ? 1 : 0);
  char name[128];
  if (length == 0 || length >= sizeof name) return false;
  memcpy(name, word, length);
  name[length] = 0;
  print_json_string(file, name);
  fputc(':', file);
  if (is_json) fputs(at + 1, file);
  else print_json_string(file, at + 1);
  return true;
}

static int event(int argc, char **argv) {
  if (argc < 1) return misused("an event has a type");
  char *body = NULL;
  size_t length = 0;
  FILE *file = open_memstream(&body, &length);
  if (file == NULL) return exit_unavailable;
  fputs("{\"type\":", file);
  print_json_string(file, argv[0]);
  fputs(",\"data\":", file);
  bool is_well = true;
  if (argc == 2 && strcmp(argv[1], "-") == 0) {
    char *data = read_all(0, INPUT_MAX);
    is_well = data != NULL;
    if (is_well) fputs(data, file);
    free(data);
  } else {
    fputc('{', file);
    for (int i = 1; i < argc && is_well; i++) {
      if (i > 1) fputc(',', file);
      is_well = print_member(file, argv[i]);
    }
    fputc('}', file);
  }
  fputc('}', file);
  fclose(file);
  int code = is_well ? call("POST", "/v1/run/events", body, false)
                     : misused("the data of an event is NAME=TEXT or NAME:=JSON, or - for standard input");
  free(body);
  return code;
}

static bool is_number(const char *text) { return *text != 0 && strlen(text) <= 15 && text[strspn(text, "0123456789")] == 0; }

static int inbox(int argc, char **argv) {
  const char *after = "0", *wait = "0";
  for (int i = 0; i < argc; i += 2) {
    const char **value = strcmp(argv[i], "--after") == 0 ? &after : strcmp(argv[i], "--wait") == 0 ? &wait : NULL;
    if (value == NULL || i + 1 == argc || !is_number(argv[i + 1])) return misused("inbox takes --after NUMBER and --wait SECONDS");
    *value = argv[i + 1];
  }
  char path[128];
  snprintf(path, sizeof path, "/v1/run/messages?after=%s&wait_s=%s", after, wait);
  return call("GET", path, NULL, true);
}

static int post_text(const char *path, const char *before, const char *text) {
  char *body = NULL;
  size_t length = 0;
  FILE *file = open_memstream(&body, &length);
  if (file == NULL) return exit_unavailable;
  fputs(before, file);
  print_json_string(file, text);
  fputc('}', file);
  fclose(file);
  int code = call("POST", path, body, true);
  free(body);
  return code;
}

static int heartbeat(int argc, char **argv) {
  if (argc > 1) return misused("heartbeat takes one status");
  return post_text("/v1/run/heartbeat", "{\"status\":", argc == 1 ? argv[0] : "alive");
}

static int done(int argc, char **argv) {
  bool failed = argc > 0 && strcmp(argv[0], "--failed") == 0;
  if (argc > (failed ? 2 : 1) || (argc > (failed ? 1 : 0) && argv[argc - 1][0] == '-')) return misused("done takes --failed and one text");
  return post_text("/v1/run/done",
                   failed ? "{\"success\":false,\"text\":" : "{\"success\":true,\"text\":", argc > (failed ? 1 : 0) ? argv[argc - 1] : "");
}

int helper_main(int argc, char **argv) {
  static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
  } verbs[] = {{"event", event}, {"inbox", inbox}, {"heartbeat", heartbeat}, {"done", done}};
  for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
    if (strcmp(argv[1], verbs[i].name) == 0) return verbs[i].run(argc - 2, argv + 2);
  if (strcmp(argv[1], "help") == 0) {
    fputs(usage, stdout);
    return 0;
  }
  return misused("there is no such command");
}
