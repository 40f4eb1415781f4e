#include "runtime/io_thread.hpp"

#include <csignal>
#include <pthread.h>

namespace insula::runtime {

io_thread::io_thread()
    : thread_([this] {
      sigset_t all;
      ::sigfillset(&all);
      ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
      ::pthread_setname_np(::pthread_self(), "insula-io");
      context_.run();
    }) {}

io_thread::~io_thread() {
  boost::asio::post(context_, [this] { context_.stop(); });
  thread_.join();
}

} // namespace insula::runtime
