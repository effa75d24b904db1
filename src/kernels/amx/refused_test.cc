// SPDX-License-Identifier: Apache-2.0
// On a machine with AMX: this program again, in a process whose system refuses tiles. It must take the machine for one
// without AMX, and the tests that trap tile instructions, which have nothing to trap here, run there.
#include <gtest/gtest.h>

#include "kernels/cpu_features.h"

#if defined(__linux__) && defined(__x86_64__)
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string>

#include "base/mapped_file.h"
#include "tests/test_data.h"

namespace hydrant::kernels::refused_test {
namespace {

// From now on this process and what it becomes gets EPERM when it asks for tiles.
bool RefuseTiles() {
  constexpr unsigned kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kRequestPermission, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter = {sizeof(steps) / sizeof(steps[0]), steps};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(AmxRefusedTest, TheTrappedTestsPassWhereTheSystemRefusesTiles) {
  if (!DetectCpuFeatures().amx) GTEST_SKIP() << "this machine has no AMX: the trapped tests run by themselves";
  constexpr int kNoFilter = 77;
  const test::TempDir dir;
  const std::string out = dir.path() + "/out";
  const pid_t child = fork();
  if (child == 0) {
    if (!RefuseTiles()) _exit(kNoFilter);
    dup2(open(out.c_str(), O_WRONLY | O_CREAT, 0600), STDOUT_FILENO);
    execl("/proc/self/exe", "kernels", "--gtest_filter=*Trapped*Instructions*:*ProductsAreAsMany", nullptr);
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << WTERMSIG(status);
  if (WEXITSTATUS(status) == kNoFilter) GTEST_SKIP() << "system calls cannot be filtered here";
  const std::string text = base::ReadTextFile(out);
  EXPECT_EQ(WEXITSTATUS(status), 0) << text;
  EXPECT_NE(text.find("AmxMatmulTest.TheTrapped"), std::string::npos) << text;
  EXPECT_EQ(text.find("SKIPPED"), std::string::npos) << text;
}

}  // namespace
}  // namespace hydrant::kernels::refused_test
#endif
