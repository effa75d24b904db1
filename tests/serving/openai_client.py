#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `hydrant serve` with OpenAI's own client: what it sends is understood, and what it gets is in its types.

Needs the packages of requirements.txt; in_environment.py installs them.
"""

from __future__ import annotations

import argparse
import tempfile
import unittest
from pathlib import Path
from typing import Any

import openai
from openai import OpenAI

from served import Server

PROMPT = "Once upon a time there was a little hen who"
MESSAGES: list[Any] = [{"role": "user", "content": "Tell me a story about a fox and a hen."}]
KEY = "a-key-of-many-letters"

program = Path("build/release/hydrant")


def client_of(server: Server, key: str = "none") -> OpenAI:
    # Without retries: a test is to see each error as it comes.
    return OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0, timeout=30)


class ClientTest(unittest.TestCase):
    """Tests that share one server, which has the embedded model."""

    server: Server
    client: OpenAI
    model = "tale-14m"

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = cls.enterClassContext(Server(program))
        cls.client = cls.enterClassContext(client_of(cls.server))

    def complete(self, **more: Any) -> Any:
        settings = {"model": self.model, "prompt": PROMPT, "max_tokens": 24, "temperature": 0, **more}
        return self.client.completions.create(**settings)

    def chat(self, **more: Any) -> Any:
        settings = {"model": self.model, "messages": MESSAGES, "max_tokens": 24, "temperature": 0, **more}
        return self.client.chat.completions.create(**settings)

    # Models

    def test_models_are_listed(self) -> None:
        self.assertEqual([model.id for model in self.client.models.list()], [self.model])
        model = self.client.models.retrieve(self.model)
        self.assertEqual((model.id, model.object), (self.model, "model"))

    # Replies

    def test_chat(self) -> None:
        reply = self.chat()
        self.assertEqual(reply.object, "chat.completion")
        self.assertEqual(reply.model, self.model)
        [choice] = reply.choices
        self.assertEqual(choice.message.role, "assistant")
        self.assertTrue(choice.message.content)
        self.assertIn(choice.finish_reason, ("stop", "length"))
        self.assertEqual(reply.usage.total_tokens, reply.usage.prompt_tokens + reply.usage.completion_tokens)
        self.assertEqual(self.chat(max_tokens=openai.omit, max_completion_tokens=24).choices[0].message.content,
                         choice.message.content)

    def test_completion(self) -> None:
        reply = self.complete()
        self.assertEqual(reply.object, "text_completion")
        [choice] = reply.choices
        self.assertTrue(choice.text)
        self.assertEqual(choice.finish_reason, "length")
        self.assertEqual(reply.usage.completion_tokens, 24)

    def test_several_prompts(self) -> None:
        reply = self.complete(prompt=[PROMPT, "The old king"])
        self.assertEqual([choice.index for choice in reply.choices], [0, 1])
        self.assertEqual(reply.choices[0].text, self.complete().choices[0].text)

    def test_streams_have_the_text_of_replies(self) -> None:
        events = list(self.complete(stream=True))
        self.assertGreater(len(events), 1)
        whole = self.complete().choices[0]
        self.assertEqual("".join(event.choices[0].text for event in events), whole.text)
        self.assertEqual(events[-1].choices[0].finish_reason, whole.finish_reason)
        deltas = [event.choices[0].delta for event in self.chat(stream=True)]
        self.assertEqual(deltas[0].role, "assistant")
        self.assertEqual("".join(delta.content or "" for delta in deltas), self.chat().choices[0].message.content)

    def test_streams_end_with_usage_where_asked(self) -> None:
        *events, last = self.chat(stream=True, stream_options={"include_usage": True})
        self.assertTrue(all(event.usage is None for event in events))
        self.assertEqual(last.choices, [])
        self.assertEqual(last.usage.completion_tokens, self.chat().usage.completion_tokens)

    def test_two_choices(self) -> None:
        reply = self.complete(n=2, temperature=1, seed=7)
        self.assertEqual([choice.index for choice in reply.choices], [0, 1])
        self.assertNotEqual(reply.choices[0].text, reply.choices[1].text)
        self.assertEqual(reply.choices[0].text, self.complete(temperature=1, seed=7).choices[0].text)
        self.assertEqual(reply.usage.completion_tokens, 48)
        self.assertEqual(len(self.chat(n=2).choices), 2)

    def test_stop_strings_end_a_reply_before_them(self) -> None:
        whole = self.complete().choices[0].text
        word = whole.split()[3]
        [choice] = self.complete(stop=[word, "\0"]).choices
        self.assertEqual(choice.text, whole[:whole.index(word)])
        self.assertEqual(choice.finish_reason, "stop")
        self.assertEqual(self.complete(stop=word).choices[0].text, choice.text)

    def test_seeds(self) -> None:
        def text(seed: int) -> str:
            return str(self.complete(temperature=1, seed=seed).choices[0].text)

        self.assertEqual(text(3), text(3))
        self.assertNotEqual(text(3), text(4))

    def test_a_chosen_seed_is_told(self) -> None:
        reply = self.complete(temperature=1)
        self.assertEqual(self.complete(temperature=1, seed=reply.seed).choices[0].text, reply.choices[0].text)

    # Log probabilities

    def test_logprobs_of_a_chat(self) -> None:
        [choice] = self.chat(logprobs=True, top_logprobs=3).choices
        content = choice.logprobs.content
        self.check_tokens(content, choice.message.content)
        for entry in content:
            self.check_top(entry.logprob, [top.logprob for top in entry.top_logprobs])
            self.assertEqual(len(entry.top_logprobs), 3)
            self.assertEqual(entry.token, entry.top_logprobs[0].token)  # greedy: the most likely one
            self.assertEqual(bytes(entry.bytes).decode("utf-8", "replace"), entry.token)

    def test_logprobs_of_a_completion(self) -> None:
        [choice] = self.complete(logprobs=2).choices
        told = choice.logprobs
        self.assertEqual("".join(told.tokens), choice.text)
        self.assertEqual(len(told.token_logprobs), 24)
        self.assertEqual(len(told.top_logprobs), 24)
        for own, top in zip(told.token_logprobs, told.top_logprobs, strict=True):
            self.check_top(own, sorted(top.values(), reverse=True))
        ends = [offset + len(token) for offset, token in zip(told.text_offset, told.tokens, strict=True)]
        self.assertEqual(ends[:-1], told.text_offset[1:])

    def test_logprobs_of_a_stream(self) -> None:
        events = self.chat(logprobs=True, top_logprobs=1, stream=True)
        entries = [entry for event in events if event.choices[0].logprobs
                   for entry in event.choices[0].logprobs.content or []]
        self.check_tokens(entries, self.chat().choices[0].message.content)

    def check_tokens(self, entries: list[Any], text: str) -> None:
        """The entries are those of the text; the token that ended the reply may have one, too."""
        tokens = [entry.token for entry in entries]
        self.assertIn(text, ("".join(tokens), "".join(tokens[:-1])))

    def check_top(self, own: float, top: list[float]) -> None:
        """A greedy token's own logarithm is the greatest, and all are of probabilities."""
        self.assertEqual(top, sorted(top, reverse=True))
        self.assertLessEqual(top[0], 0)
        self.assertAlmostEqual(own, top[0], places=5)

    # Predictions

    def test_a_prediction_changes_no_text(self) -> None:
        plain = self.chat()
        text = plain.choices[0].message.content
        reply = self.chat(prediction={"type": "content", "content": text})
        self.assertEqual(reply.choices[0].message.content, text)
        self.assertGreater(reply.usage.completion_tokens_details.accepted_prediction_tokens, 0)

    # Errors

    def test_an_unknown_field_is_refused_by_name(self) -> None:
        with self.assertRaises(openai.BadRequestError) as caught:
            self.complete(extra_body={"no_such_field": 1})
        self.assertEqual(caught.exception.param, "no_such_field")
        self.assertIn("no_such_field", caught.exception.message)

    def test_a_prompt_that_does_not_fit_is_refused(self) -> None:
        with self.assertRaises(openai.BadRequestError) as caught:
            self.complete(prompt="word " * 1000)
        self.assertEqual(caught.exception.code, "context_length_exceeded")

    def test_an_unknown_model_is_not_found(self) -> None:
        with self.assertRaises(openai.NotFoundError):
            self.complete(model="no-such-model")
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("no-such-model")


class KeyTest(unittest.TestCase):
    def test_keys(self) -> None:
        with tempfile.NamedTemporaryFile("w", prefix="hydrant-keys-") as file:
            file.write(f"{KEY} tester\n")
            file.flush()
            with Server(program, "--api-key-file", file.name) as server:
                with self.assertRaises(openai.AuthenticationError):
                    client_of(server, "a-wrong-key-of-many-letters").models.list()
                self.assertEqual(len(client_of(server, KEY).models.list().data), 1)


class LimitTest(unittest.TestCase):
    def test_too_many_requests(self) -> None:
        # Slow on purpose: the first request must still run when the second one comes.
        slow = ("--weights", "f32", "--cpu-target", "portable", "--threads", "1")
        with Server(program, "--max-batch", "1", "--queue", "0", *slow) as server, client_of(server) as client:
            with client.completions.create(model="tale-14m", prompt=PROMPT, max_tokens=480, stream=True,
                                           extra_body={"ignore_eos": True}) as stream:
                next(iter(stream))
                with self.assertRaises(openai.RateLimitError) as caught:
                    client.completions.create(model="tale-14m", prompt=PROMPT)
            self.assertGreater(int(caught.exception.response.headers["Retry-After"]), 0)


def main() -> None:
    global program
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=Path, default=program, help="the program to test (default: %(default)s)")
    parser.add_argument("tests", nargs="*", help="names as ClientTest.test_chat (default: all)")
    options = parser.parse_args()
    program = options.program
    unittest.main(argv=["openai_client.py", *options.tests], verbosity=2)


if __name__ == "__main__":
    main()
