// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/chat/chat_template.h"

#include <array>
#include <cstdint>
#include <cstdio>

#include "base/nearest.h"
#include "hydrant/error.h"
#include "tokenizer/utf8.h"

namespace hydrant::tokenizer {
namespace {

struct Conversation {
  std::span<const Message> messages;
  const TemplateTokens& tokens;
  bool add_generation_prompt;
};

[[noreturn]] void FailAlternation(size_t message_idx, const Message& message) {
  throw UserError("message " + std::to_string(message_idx + 1) + " has role \"" + message.role +
                      "\": the chat template wants user and assistant in turns, the user first",
                  "reorder the messages, or choose another RenderChat::template_name");
}

std::string Strip(const std::string& text) { return std::string(StripLikePython(text)); }

bool HasSystem(std::span<const Message> messages) { return messages[0].role == "system"; }

// The alternation test of the Llama-2 and Mistral templates: users stand at even places, everything else at odd ones.
void CheckTurn(std::span<const Message> messages, size_t i) {
  if ((messages[i].role == "user") != (i % 2 == 0)) FailAlternation(i, messages[i]);
}

// FastChat's "vicuna_v1.1"; roles are not checked. The space before USER comes from the system text, hence only once.
std::string Vicuna(const Conversation& chat) {
  std::span<const Message> turns = chat.messages;
  std::string prompt = chat.tokens.bos;
  if (HasSystem(turns)) {
    prompt += turns[0].content;
    turns = turns.subspan(1);
  } else {
    prompt +=
        "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, "
        "detailed, and polite answers to the user's questions.";
  }
  for (size_t i = 0; i < turns.size(); ++i) {
    if (turns[i].role == "user") {
      prompt += (i == 0 ? " USER: " : "USER: ") + turns[i].content;
    } else {
      prompt += " ASSISTANT: " + turns[i].content + chat.tokens.eos;
    }
  }
  return chat.add_generation_prompt ? prompt + " ASSISTANT:" : prompt;
}

// The indentation and line breaks around the printed expressions are part of what this template prints.
std::string VicunaNewlineVariant(const Conversation& chat) {
  std::span<const Message> turns = chat.messages;
  std::string system;
  if (HasSystem(turns)) {
    system = Strip(turns[0].content) + "\n\n";
    turns = turns.subspan(1);
  }
  const std::string indent(8, ' ');
  std::string prompt;
  for (size_t i = 0; i < turns.size(); ++i) {
    CheckTurn(turns, i);
    if (i == 0) prompt += indent + chat.tokens.bos + system + "\n";
    const std::string content = Strip(turns[i].content);
    if (turns[i].role == "user") prompt += indent + "USER: " + content + "\n\n";
    if (turns[i].role == "assistant") prompt += indent + "ASSISTANT: " + content + chat.tokens.eos + "\n\n";
  }
  return chat.add_generation_prompt ? prompt + "    ASSISTANT:\n" : prompt;
}

// A system message after the first is dropped without an error, as published; there is no generation prompt.
std::string Llama2(const Conversation& chat) {
  std::span<const Message> turns = chat.messages;
  const bool has_system = HasSystem(turns);
  if (has_system) turns = turns.subspan(1);
  std::string prompt;
  for (size_t i = 0; i < turns.size(); ++i) {
    CheckTurn(turns, i);
    std::string content = turns[i].content;
    if (i == 0 && has_system) content = "<<SYS>>\n" + chat.messages[0].content + "\n<</SYS>>\n\n" + content;
    if (turns[i].role == "user") prompt += chat.tokens.bos + "[INST] " + Strip(content) + " [/INST]";
    if (turns[i].role == "assistant") prompt.append(" ").append(Strip(content)).append(" ").append(chat.tokens.eos);
  }
  return prompt;
}

std::string Llama3Header(const std::string& role) { return "<|start_header_id|>" + role + "<|end_header_id|>\n\n"; }

std::string Llama3(const Conversation& chat) {
  std::string prompt = chat.tokens.bos;
  for (const Message& message : chat.messages) {
    prompt += Llama3Header(message.role) + Strip(message.content) + "<|eot_id|>";
  }
  return chat.add_generation_prompt ? prompt + Llama3Header("assistant") : prompt;
}

// A JSON string as Python writes it with ensure_ascii off.
std::string JsonQuoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char letter : text) {
    switch (letter) {
      case '"': quoted += "\\\""; break;
      case '\\': quoted += "\\\\"; break;
      case '\b': quoted += "\\b"; break;
      case '\f': quoted += "\\f"; break;
      case '\n': quoted += "\\n"; break;
      case '\r': quoted += "\\r"; break;
      case '\t': quoted += "\\t"; break;
      default:
        if (static_cast<uint8_t>(letter) < 0x20) {
          std::array<char, 8> escaped{};
          std::snprintf(escaped.data(), escaped.size(), "\\u%04x", static_cast<unsigned>(static_cast<uint8_t>(letter)));
          quoted += escaped.data();
        } else {
          quoted += letter;
        }
    }
  }
  return quoted + "\"";
}

// Always a system block with the two date lines; messages of tools are printed as JSON.
std::string Llama31(const Conversation& chat) {
  std::span<const Message> turns = chat.messages;
  std::string system;
  if (HasSystem(turns)) {
    system = Strip(turns[0].content);
    turns = turns.subspan(1);
  }
  std::string prompt = chat.tokens.bos + Llama3Header("system") +
                       "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n" + system + "<|eot_id|>";
  for (const Message& message : turns) {
    const bool of_tool = message.role == "tool" || message.role == "ipython";
    prompt += Llama3Header(of_tool ? "ipython" : message.role);
    prompt += (of_tool ? JsonQuoted(message.content) : Strip(message.content)) + "<|eot_id|>";
  }
  return chat.add_generation_prompt ? prompt + Llama3Header("assistant") : prompt;
}

std::string ChatMl(const Conversation& chat, const std::string& default_system) {
  std::string prompt;
  if (!default_system.empty() && !HasSystem(chat.messages)) {
    prompt = "<|im_start|>system\n" + default_system + "<|im_end|>\n";
  }
  for (const Message& message : chat.messages) {
    prompt += "<|im_start|>" + message.role + "\n" + message.content + "<|im_end|>\n";
  }
  return chat.add_generation_prompt ? prompt + "<|im_start|>assistant\n" : prompt;
}

std::string ChatMlQwen2(const Conversation& chat) { return ChatMl(chat, "You are a helpful assistant."); }
std::string ChatMlQwen15(const Conversation& chat) { return ChatMl(chat, "You are a helpful assistant"); }
// Of Qwen2.5's template the part without tools, whose Jinja text is not recognised: that prints tools too.
std::string ChatMlQwen25(const Conversation& chat) {
  return ChatMl(chat, "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.");
}
std::string ChatMlPlain(const Conversation& chat) { return ChatMl(chat, ""); }

std::string Mistral(const Conversation& chat, const std::string& after_eos) {
  std::string prompt = chat.tokens.bos;
  for (size_t i = 0; i < chat.messages.size(); ++i) {
    const Message& message = chat.messages[i];
    CheckTurn(chat.messages, i);
    if (message.role == "user") {
      prompt += "[INST] " + message.content + " [/INST]";
    } else if (message.role == "assistant") {
      prompt += message.content + chat.tokens.eos + after_eos;
    } else {
      throw UserError("message " + std::to_string(i + 1) + " has role \"" + message.role +
                          "\": the chat template knows user and assistant only",
                      "leave the message out, or choose another RenderChat::template_name");
    }
  }
  return prompt;
}

std::string MistralV02(const Conversation& chat) { return Mistral(chat, ""); }
std::string MistralV01(const Conversation& chat) { return Mistral(chat, " "); }

// Messages of other roles are dropped without an error, as published.
std::string Zephyr(const Conversation& chat) {
  std::string prompt;
  for (const Message& message : chat.messages) {
    if (message.role != "user" && message.role != "system" && message.role != "assistant") continue;
    prompt += "<|" + message.role + "|>\n" + message.content + chat.tokens.eos + "\n";
  }
  return chat.add_generation_prompt ? prompt + "<|assistant|>\n" : prompt;
}

struct Template {
  std::string_view name;
  std::string (*render)(const Conversation&);
  std::string_view usual_bos;
  std::string_view usual_eos;
  std::string_view end_of_reply;  // empty: EOS
  // Of the published Jinja text without a line break at its end: bytes and FNV-1a hash.
  size_t jinja_bytes;
  uint64_t jinja_hash;
};

constexpr std::string_view kLlama3Bos = "<|begin_of_text|>";

constexpr std::array kTemplates = {
    Template{"vicuna", &Vicuna, "<s>", "</s>", "", 602, 0xAC712F7C7BF01C98},
    Template{"vicuna_newline_variant", &VicunaNewlineVariant, "<s>", "</s>", "", 871, 0x8A1C625CF3421DF2},
    Template{"llama-2", &Llama2, "<s>", "</s>", "", 815, 0xF344EECF1BD3A427},
    Template{"llama-3", &Llama3, kLlama3Bos, "<|eot_id|>", "<|eot_id|>", 389, 0x0E60067A5537498E},
    Template{"llama-3.1", &Llama31, kLlama3Bos, "<|eot_id|>", "<|eot_id|>", 4613, 0xCC0368E1FFB6B958},
    Template{"chatml", &ChatMlQwen2, "", "<|im_end|>", "<|im_end|>", 328, 0x8A87094E0E1E24C5},
    Template{"chatml_qwen15", &ChatMlQwen15, "", "<|im_end|>", "<|im_end|>", 327, 0xC867DA37C989D41F},
    Template{"chatml_qwen25", &ChatMlQwen25, "", "<|im_end|>", "<|im_end|>", 0, 0},
    Template{"chatml_plain", &ChatMlPlain, "", "<|im_end|>", "<|im_end|>", 196, 0x88BF4138D5C826F0},
    Template{"mistral", &MistralV02, "<s>", "</s>", "", 470, 0x8C734B90B4F8D84D},
    Template{"mistral_v01", &MistralV01, "<s>", "</s>", "", 477, 0xC730ACC029CE6EE0},
    Template{"zephyr", &Zephyr, "<s>", "</s>", "", 410, 0xCD8B49000DB02C2C},
};

constexpr auto kNames = [] {
  std::array<std::string_view, kTemplates.size()> names{};
  for (size_t i = 0; i < names.size(); ++i) names[i] = kTemplates[i].name;
  return names;
}();

const Template& FindTemplate(std::string_view name) {
  for (const Template& known : kTemplates) {
    if (known.name == name) return known;
  }
  const std::string nearest = base::Nearest(name, kNames);
  std::string list;
  for (const std::string_view known : kNames) list += (list.empty() ? "" : ", ") + std::string(known);
  throw UserError("RenderChat::template_name: there is no chat template \"" + std::string(name) + "\"",
                  nearest.empty() ? "known ones: " + list : "did you mean \"" + nearest + "\"? known ones: " + list);
}

uint64_t Fnv1a(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char byte : text) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001B3;
  return hash;
}

}  // namespace

std::span<const std::string_view> TemplateNames() { return kNames; }

std::string RenderTemplate(std::string_view name, std::span<const Message> messages, const TemplateTokens& tokens,
                           bool add_generation_prompt) {
  const Template& known = FindTemplate(name);
  if (messages.empty()) throw UserError("the conversation has no messages", "give at least one message");
  return known.render({messages, tokens, add_generation_prompt});
}

std::string_view RecognizeTemplate(std::string_view text) {
  const std::string unified = ReplaceAll(ReplaceAll(text, "\r\n", "\n"), "\r", "\n");  // as Jinja's lexer does
  std::string_view jinja = unified;
  if (jinja.ends_with('\n')) jinja.remove_suffix(1);
  const uint64_t hash = Fnv1a(jinja);
  for (const Template& known : kTemplates) {
    if (known.jinja_bytes == jinja.size() && known.jinja_hash == hash) return known.name;
  }
  return {};
}

std::string EndOfReply(std::string_view name, const TemplateTokens& tokens) {
  const std::string_view end = FindTemplate(name).end_of_reply;
  return end.empty() ? tokens.eos : std::string(end);
}

TemplateTokens UsualTokens(std::string_view name) {
  const Template& known = FindTemplate(name);
  return {std::string(known.usual_bos), std::string(known.usual_eos)};
}

}  // namespace hydrant::tokenizer
