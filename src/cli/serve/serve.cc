// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/serve.h"

#include <fmt/core.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "cli/flags/default_model.h"
#include "cli/flags/engine_flags.h"
#include "cli/flags/sampling_settings.h"
#include "cli/run/prompt.h"
#include "cli/serve/serve_flags.h"
#include "cli/terminal/errors.h"
#include "cli/terminal/terminal.h"
#include "server/http/http_server.h"
#include "server/service.h"

namespace hydrant::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook{20};  // how often the main thread looks for signals
constexpr std::chrono::seconds kLastStep{10};   // for the step in hand and the last bytes of replies that are cut off

// Loading ends by a signal; serving does not end by it at once.
class LoadInterrupt {
 public:
  LoadInterrupt() : watcher_([this] { Watch(); }) {}
  ~LoadInterrupt() { Loaded(); }
  LoadInterrupt(const LoadInterrupt&) = delete;
  LoadInterrupt& operator=(const LoadInterrupt&) = delete;

  const std::atomic<bool>* flag() const { return &flag_; }
  void Loaded() {
    is_loaded_ = true;
    if (watcher_.joinable()) watcher_.join();
  }

 private:
  void Watch() {
    while (!is_loaded_) {
      if (Interrupted()) flag_ = true;
      std::this_thread::sleep_for(kLook);
    }
  }

  std::atomic<bool> flag_ = false, is_loaded_ = false;
  std::thread watcher_;
};

std::string NameOfFolder(const std::string& folder) {
  std::error_code error;
  const std::string name = std::filesystem::weakly_canonical(folder, error).filename().string();
  return name.empty() ? folder : name;
}

// What programs ask every few seconds, with nothing to say about it.
bool IsProbe(const server::ReplyRecord& record) {
  return record.status == 200 && (record.path == "/health" || record.path == "/ready" || record.path == "/metrics");
}

server::ServiceOptions ServiceOptionsOf(const ServeOptions& options, const Engine& engine,
                                        const std::string& template_name) {
  server::ServiceOptions service;
  service.model_name = options.model_name.empty() ? NameOfFolder(options.run.engine.model) : options.model_name;
  service.template_name = template_name;
  service.end_of_reply = engine.EndOfReply(template_name);
  service.defaults.generation = options.run.request;
  service.defaults.generation.sampling.temperature = TemperatureOf(options.run.engine.model).value;
  service.defaults.allow_unknown = options.allow_unknown;
  service.max_open = options.run.engine.max_running + options.queue;
  service.max_open_per_key = options.most_per_key > 0 ? options.most_per_key : service.max_open;
  service.max_tokens = options.max_tokens;
  service.request_timeout = options.request_timeout;
  service.share_cache = options.share_cache;
  service.log_requests = options.log_requests;
  if (!options.quiet) {
    service.on_reply = [](const server::ReplyRecord& record) {
      if (!IsProbe(record)) PrintError(server::LogLine(record));
    };
  }
  return service;
}

Engine LoadEngine(ServeOptions& options, LoadInterrupt& interrupt) {
  options.run.engine.stop = interrupt.flag();
  options.run.engine.on_pack = PackProgress();
  Engine engine(options.run.engine);
  interrupt.Loaded();
  PrintWarnings(engine.info().warnings);
  PrintWarnings(options.run.warnings);
  return engine;
}

void WarnOfTheNetwork(const ServeOptions& options) {
  const std::string& host = options.http.host;
  if (host.starts_with("127.") || host == "::1" || host == "localhost") return;
  if (options.api_key_file.empty()) {
    PrintWarnings(
        {fmt::format("{} can be reached by other machines, and everyone there may ask (--api-key-file)", host)});
  }
  if (options.http.tls_cert.empty()) {
    PrintWarnings(
        {fmt::format("{} can be reached by other machines, and what is sent can be read on its way "
                     "(--tls-cert, --tls-key)",
                     host)});
  }
}

std::string MemoryText(uint64_t bytes) { return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1U << 30U)); }

// What was loaded and what its limits are: the first lines of the log.
std::string StartText(const EngineInfo& info, const ServeOptions& options, size_t num_keys) {
  const std::string drafts =
      info.num_heads == 0 ? "no drafter" : fmt::format("drafts by {} ({})", info.drafter, info.head_weights);
  return fmt::format(
      "model: {} ({}), {}\n"
      "machine: {} kernels, {} thread{}\n"
      "context: {} tokens a request; keys and values for {} tokens of all requests, at most {}\n"
      "requests: {} run, {} wait; {}\n",
      options.run.engine.model, info.weights, drafts, info.cpu_target, info.threads, info.threads == 1 ? "" : "s",
      info.max_positions, info.kv_positions, MemoryText(info.kv_memory), options.run.engine.max_running, options.queue,
      num_keys == 0 ? "no API keys" : fmt::format("{} API keys", num_keys));
}

// Until a signal; then until running requests have ended, or their time is over.
void ServeUntilSignal(server::HttpServer& http, server::Service& service, const ServeOptions& options) {
  while (!Interrupted()) std::this_thread::sleep_for(kLook);
  std::signal(SIGINT, SIG_DFL);  // a second one ends at once
  std::signal(SIGTERM, SIG_DFL);
  service.SayNotReady();
  PrintError(fmt::format("ending: {} sequences still run\n", service.num_open()));
  std::this_thread::sleep_for(options.drain_delay);
  service.Drain();
  http.Drain();
  const auto wait_for = [&](std::chrono::seconds most) {
    const auto last = Clock::now() + most;
    const auto is_busy = [&] { return service.num_open() > 0 || http.counts().open > 0; };
    while (is_busy() && Clock::now() < last) std::this_thread::sleep_for(kLook);
  };
  wait_for(options.shutdown_timeout);
  if (service.num_open() == 0) return;
  PrintError(fmt::format("ending: {} sequences are cut off\n", service.num_open()));
  service.EndAll();
  wait_for(kLastStep);
}

}  // namespace

int Serve(const std::vector<std::string>& args) {
  std::optional<ServeOptions> parsed = ParseServeFlags(args);
  if (!parsed) return kExitOk;
  ServeOptions& options = *parsed;
  // What takes no time is checked before the model is loaded. They end in the reverse order.
  LoadInterrupt interrupt;
  std::optional<Engine> engine;
  std::unique_ptr<server::Service> service;
  server::HttpServer http(options.http,
                          [&service](const server::HttpRequest& request, std::shared_ptr<server::Exchange> exchange) {
                            service->Handle(request, std::move(exchange));
                          });
  server::ApiKeys keys;
  if (!options.api_key_file.empty()) keys = server::ApiKeys::Read(options.api_key_file);
  ChooseModel(options.run.engine);
  const std::string template_name = ChooseTemplate(options.run, /*interactive=*/true);
  engine.emplace(LoadEngine(options, interrupt));
  server::ServiceOptions service_options = ServiceOptionsOf(options, *engine, template_name);
  if (!options.quiet) PrintError(StartText(engine->info(), options, keys.size()));
  service_options.keys = std::move(keys);
  service_options.num_connections = [&http] { return http.counts().open; };
  service = std::make_unique<server::Service>(*engine, std::move(service_options));
  http.Start();
  WarnOfTheNetwork(options);
  const bool is_v6 = options.http.host.find(':') != std::string::npos;
  Print(fmt::format("listening on {}://{}:{}\n", options.http.tls_cert.empty() ? "http" : "https",
                    is_v6 ? "[" + options.http.host + "]" : options.http.host, http.port()));
  ServeUntilSignal(http, *service, options);
  http.Stop();
  return kExitOk;
}

}  // namespace hydrant::cli
