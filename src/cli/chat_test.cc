// SPDX-License-Identifier: Apache-2.0
// The chat of `run` as somebody at a terminal meets it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "tests/program.h"
#include "tests/pseudo_terminal.h"

namespace hydrant::test::chat_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kPrompt = "\x1b[?2004h";  // pastes are marked from here on: a line is read

class ChatTest : public testing::Test {
 protected:
  void Start(const std::vector<std::string>& more = {}, const std::string& term = "xterm") {
    std::vector<std::string> args = {"run", "--model", Model(), "--template", "vicuna", "--max-tokens", "6"};
    args.insert(args.end(), more.begin(), more.end());
    terminal_ =
        std::make_unique<PseudoTerminal>(args, std::vector<std::string>{"TERM=" + term, "HOME=" + dir_.path(),
                                                                        "XDG_STATE_HOME=" + dir_.path() + "/state",
                                                                        "LC_ALL=C.UTF-8", "EDITRC=/dev/null"});
    if (term != "dumb") terminal_->Until(kPrompt);
  }
  // What is shown after a line until the next one is read.
  std::string Say(const std::string& line) {
    terminal_->Type(line + "\r");
    terminal_->Until("\x1b[?2004l");
    return terminal_->Until(kPrompt);
  }
  void Leave() {
    terminal_->Type("/quit\r");
    EXPECT_EQ(terminal_->Wait(), 0);
  }
  std::string File(const std::string& name) const { return dir_.path() + "/" + name; }
  // The conversation so far.
  Json Saved() {
    std::filesystem::remove(File("saved.json"));
    Say("/save " + File("saved.json"));
    return base::ParseJson(ReadBack(File("saved.json")), "saved");
  }

  const TempDir dir_;
  std::unique_ptr<PseudoTerminal> terminal_;
};

TEST_F(ChatTest, LinesAreEditedAndComeBackFromTheHistory) {
  Start();
  Say("Helloo\x7f thexre\x1b[D\x1b[D\x7f\x1b[C\x1b[C!");  // rubbed out at the end, and inside after two steps left
  Say("caf\xc3\xa9 \xf0\x9f\x98\x80");
  terminal_->Type("\x1b[A\x1b[A");  // two lines up
  Say("");
  const Json saved = Saved();
  ASSERT_EQ(saved.size(), 6U);
  EXPECT_EQ(saved[0]["content"], "Hello there!");
  EXPECT_EQ(saved[2]["content"], "caf\xc3\xa9 \xf0\x9f\x98\x80");
  EXPECT_EQ(saved[4]["content"], "Hello there!");
  Leave();
  const std::string history = File("state/hydrant/history");
  struct stat info {};
  ASSERT_EQ(stat(history.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  EXPECT_THAT(ReadBack(history), HasSubstr("\"Hello there!\"\n"));
  Start();                                      // another time
  terminal_->Type("\x1b[A\x1b[A\x1b[A\x1b[A");  // /quit, /save, Hello there!, the second message
  Say("");
  EXPECT_EQ(Saved()[0]["content"], "caf\xc3\xa9 \xf0\x9f\x98\x80");
  Leave();
}

TEST_F(ChatTest, APastedTextIsOneMessage) {
  Start();
  Say("Read this: \x1b[200~line one\r/quit\r\rline four\x1b[201~ please");
  Say("\x1b[200~/help\rnot a command\r\x1b[201~");
  const Json saved = Saved();
  ASSERT_EQ(saved.size(), 4U);
  EXPECT_EQ(saved[0]["content"], "Read this: line one\n/quit\n\nline four please");
  EXPECT_EQ(saved[2]["content"], "/help\nnot a command");
  Leave();
}

TEST_F(ChatTest, CtrlCEndsTheLineOrTheReplyAndCtrlDTheChat) {
  Start();
  terminal_->Type("half a line\x03");
  terminal_->Until("(/quit or Ctrl-D leaves)");
  terminal_->Until(kPrompt);
  Say("/set max-tokens 100000");
  Say("/set ignore-eos on");
  terminal_->Type("Go on\r");
  terminal_->Until("\x1b[?2004l");
  terminal_->Until(" ");  // of the reply
  terminal_->Type("\x03");
  terminal_->Until(kPrompt);
  const Json saved = Saved();
  ASSERT_EQ(saved.size(), 2U);
  EXPECT_EQ(saved[0]["content"], "Go on");
  terminal_->Type("\x04");
  EXPECT_EQ(terminal_->Wait(), 0);
}

TEST_F(ChatTest, SignalsAtThePromptEndTheChatAsTheyEndAReply) {
  Start();
  terminal_->Send(SIGTERM);
  EXPECT_THAT(terminal_->Rest(), Not(HasSubstr("Ctrl-D")));
  EXPECT_EQ(terminal_->Wait(), 128 + SIGTERM);
  Start();
  EXPECT_EQ(terminal_->HangUp(), 128 + SIGHUP);
}

TEST_F(ChatTest, ASystemMessageThatIsTooLongIsNamed) {
  Start();
  std::string text;
  for (int i = 0; i < 300; ++i) text += " the cat";
  Say("/system" + text);
  EXPECT_THAT(Say("Hi"), AllOf(HasSubstr("system message and message come to"), HasSubstr("'/system -' removes")));
  Say("/system -");
  EXPECT_THAT(Say("Hi"), Not(HasSubstr("error: ")));
  Leave();
}

TEST_F(ChatTest, OldestTurnsAreDroppedWhereTheContextIsFull) {
  Start({"--system", "You are a poet."});
  std::string text;
  for (int i = 0; i < 60; ++i) text += "the cat ";
  EXPECT_THAT(Say(text), Not(HasSubstr("no longer sees")));
  std::string shown;
  for (int turn = 0; turn < 6; ++turn) shown += Say(text);
  EXPECT_THAT(shown, HasSubstr("the context of 512 tokens is full: the model no longer sees the 1 oldest turn)"));
  EXPECT_THAT(shown, AllOf(HasSubstr("sees the 2 oldest turns"), Not(HasSubstr("error: "))));
  const Json saved = Saved();
  EXPECT_EQ(saved.size(), 15U) << "a saved chat is whole";
  EXPECT_EQ(saved[0]["role"], "system");
  std::string long_text;
  for (int i = 0; i < 800; ++i) long_text += "the cat ";
  EXPECT_THAT(Say("\x1b[200~" + long_text + "\x1b[201~"), HasSubstr("and the model's context has 512"));
  EXPECT_THAT(Say("Hi"), Not(HasSubstr("error: ")));
  Leave();
}

TEST_F(ChatTest, SettingsAreListedChangedAndChecked) {
  Start();
  EXPECT_THAT(Say("/set"), AllOf(HasSubstr("temperature          0\r\n"), HasSubstr("max-tokens           6\r\n"),
                                 HasSubstr("stop                 []"), HasSubstr("ignore-eos           off")));
  EXPECT_THAT(Say("/set top_p 0.9"),
              AllOf(HasSubstr("temperature 1: at 0 top-p means nothing"), HasSubstr("top-p 0.9")));
  EXPECT_THAT(Say("/set temperature 0.8"), HasSubstr("temperature 0.8\r\n"));
  EXPECT_THAT(Say("/set temperature hot"), HasSubstr("temperature is \"hot\", expected"));
  EXPECT_THAT(Say("/set temprature 1"), HasSubstr("did you mean temperature?"));
  EXPECT_THAT(Say("/set temperature"), HasSubstr("temperature 0.8"));
  EXPECT_THAT(Say("/set stop END"), HasSubstr("stop [\"END\"]"));
  EXPECT_THAT(Say("/set max-tokens 2"), HasSubstr("max-tokens 2"));
  EXPECT_THAT(Say("Hi"), HasSubstr("(stopped at 2 tokens; /set max-tokens N for more)"));
  EXPECT_THAT(Say("/retry"), HasSubstr("(again, with seed 1)"));
  EXPECT_EQ(Saved().size(), 2U) << "the reply is replaced";
  EXPECT_THAT(Say("/set temperature 0"), HasSubstr("temperature 0\r\n"));
  EXPECT_THAT(Say("/retry"), HasSubstr("at temperature 0 the reply is the same"));
  EXPECT_THAT(Say("/help"), AllOf(HasSubstr("/system TEXT"), HasSubstr("/save FILE"), HasSubstr("/retry")));
  Leave();
}

TEST_F(ChatTest, ChatsAreSavedAndLoaded) {
  Start();
  EXPECT_THAT(Say("/retry"), HasSubstr("nothing to try again"));
  EXPECT_THAT(Say("/save " + File("a.json")), HasSubstr("nothing to save yet"));
  Say("/system Be brief.");
  EXPECT_THAT(Say("/system"), HasSubstr("system message: Be brief."));
  Say("Hello");
  EXPECT_THAT(Say("/save " + File("a.json")), HasSubstr("1 turn saved to "));
  EXPECT_THAT(Say("/save " + File("a.json")), HasSubstr("in place of the chat that was there"));
  const Json saved = base::ParseJson(ReadBack(File("a.json")), "a.json");
  ASSERT_EQ(saved.size(), 3U);
  EXPECT_EQ(saved[0]["content"], "Be brief.");
  const std::string notes = dir_.Write("notes.txt", "mine");
  EXPECT_THAT(Say("/save " + notes), HasSubstr("is no saved chat, so it stays as it is"));
  EXPECT_EQ(ReadBack(notes), "mine");
  EXPECT_THAT(Say("/save " + File("no/such/folder")), HasSubstr("error: "));
  Say("/reset");
  EXPECT_THAT(Say("/load " + File("a.json")), HasSubstr("1 turn loaded from "));
  EXPECT_EQ(Saved(), saved);
  for (const auto& [content, part] : std::initializer_list<std::pair<const char*, const char*>>{
           {"mine", "error: "},
           {"{}", "is no saved chat: it holds no list"},
           {R"([1])", "expected a message"},
           {R"([{"role":"user"}])", "'[0].content' is missing"},
           {R"([{"role":"user","content":7}])", "content"},
           {R"([{"role":"tool","content":"x"}])", "expected \"user\""},
           {R"([{"role":"user","content":"x"}])", "ends with a message of the user's"},
           {R"([{"role":"user","content":"x"},{"role":"user","content":"x"}])", "expected \"assistant\""},
           {R"([{"role":"user","content":"x","tool_calls":[]}])", "tool_calls"},
           {"[[[[[[[[", "error: "},
           {"[{\"role\":\"user\",\"content\":\"\xff\"}]", "error: "}}) {
    EXPECT_THAT(Say("/load " + dir_.Write("bad.json", content)), HasSubstr(part)) << content;
  }
  EXPECT_THAT(Say("/load /nowhere/x"), HasSubstr("error: /nowhere/x"));
  EXPECT_THAT(Say("/load /dev/zero"), HasSubstr("error: /dev/zero"));
  EXPECT_EQ(Saved(), saved) << "a file that is refused changes nothing";
  Leave();
}

TEST_F(ChatTest, AHistoryThatIsNoneIsLeftAsItIs) {
  std::filesystem::create_directories(File("state/hydrant"));
  const std::string history = dir_.Write("state/hydrant/history", "no JSON");
  Start();
  Say("Hi");
  Leave();
  EXPECT_EQ(ReadBack(history), "no JSON");
}

TEST_F(ChatTest, ATerminalThatCanDoNothingHasTheChatToo) {
  Start({}, "dumb");
  terminal_->Until("> ");
  terminal_->Type("/set temperature 0.8\n");
  terminal_->Until("\ntemperature 0.8");
  terminal_->Type("/quit\n");
  EXPECT_EQ(terminal_->Wait(), 0);
}

TEST(RunTerminalTest, AReplyThatALimitEndedSaysSo) {
  PseudoTerminal length({"run", "--model", Model(), "--template", "none", "--prompt", "Once", "--max-tokens", "4"}, {});
  length.Until("(stopped at 4 tokens; --max-tokens N for more)");
  EXPECT_EQ(length.Wait(), 0);
  PseudoTerminal context(
      {"run", "--model", Model(), "--template", "none", "--prompt", "Once", "--max-tokens", "4000", "--ignore-eos"},
      {});
  context.Until("(stopped: prompt and reply fill the model's context of 512 tokens)");
  EXPECT_EQ(context.Wait(), 0);
}

}  // namespace
}  // namespace hydrant::test::chat_test
