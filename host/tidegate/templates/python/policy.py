"""The policy `{{name}}`: holds back a key that is too busy.

`describe` says what `rules.toml` may set, `configure` gets it as it was described, `decide` is asked about each message.
Attributes of the object are a cache: the host makes fresh instances whenever it likes. What must be remembered goes into
the host's `state`. Durations are milliseconds.
"""

from tidegate.throttle import Description, Message, Verdict, defer, deliver, duration, integer, number, throttle_policy


class Policy:
    def describe(self) -> Description:
        return Description(
            name="{{name}}",
            version="0.1.0",
            summary="Holds back a key that is too busy.",
            parameters={
                "limit": number("Deliveries of one key a second.", default=100, min=0, max=1e6),
                "delay": duration("For how long a message of a busy key is held back.", default="1s"),
                "attempts": integer(
                    "A message handed out so often is delivered, however busy its key is.", default=5, min=1
                ),
            },
        )

    def configure(self, rules: dict) -> None:
        self.limit = rules["limit"]
        self.delay = rules["delay"]
        self.attempts = rules["attempts"]

    def decide(self, message: Message) -> Verdict:
        if message.standing().key_rate <= self.limit or message.attempt() >= self.attempts:
            return deliver()
        return defer(self.delay, f"{message.key()} is busy")


Lifecycle, Throttle = throttle_policy(Policy())
