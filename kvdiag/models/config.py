"""Reading a config.json: JSON only, bounded, with the text model's part found as SGLang finds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvdiag.errors import ConfigError
from kvdiag.frozen import frozen
from kvdiag.small import not_json, small_file

LARGEST_CONFIG = 4 << 20
_ADVICE = "give a model folder or its config.json"
_TEXT_CONFIGS = ("thinker_config", "llm_config", "language_config", "text_config", "language_model_config")


@frozen
class ModelConfig:
    """A model's config.json.

    `whole` is the file, `text` the part that describes the language model (the file itself where nothing is nested).
    `found_in` is ``config`` (given), ``log`` (the log's model_path exists here), ``cache`` (the local Hugging Face
    cache) or ``catalogue``; `place` is the path or the catalogue entry's name. `note` is not empty where the catalogue was
    matched loosely: it says what the name leaves open; `untold` is what its entry leaves open (``catalogue.Match``).
    """

    whole: Mapping[str, Any]
    text: Mapping[str, Any]
    found_in: str
    place: str
    note: str = ""
    untold: tuple[str, ...] = ()

    @property
    def architectures(self) -> tuple[str, ...]:
        """The class names in ``architectures``, outermost first."""
        names = self.whole.get("architectures") or self.text.get("architectures") or ()
        return tuple(name for name in names if isinstance(name, str)) if isinstance(names, (list, tuple)) else ()

    def integer(self, *names: str) -> int | None:
        """The first of these keys that holds a whole number, None where none does.

        Raises ConfigError where a key holds something else than a number, or a number no model has.
        """
        for name in names:
            value = self.text.get(name)
            if value is None:
                continue
            if (
                isinstance(value, bool)
                or not isinstance(value, (int, float))
                or (isinstance(value, float) and not value.is_integer())
            ):
                raise ConfigError(f"{self.place}: {name} is {value!r}, not a whole number")
            if not 0 <= value <= 10**9:
                raise ConfigError(f"{self.place}: {name} is {value}, which no model has")
            return int(value)
        return None

    def required(self, *names: str) -> int:
        """As `integer`, but ConfigError names the keys that are missing."""
        value = self.integer(*names)
        if value is None:
            raise ConfigError(f"{self.place}: the config has no {' or '.join(names)}; is it the config.json of the model itself?")
        return value


def config_from(data: Any, found_in: str, place: str) -> ModelConfig:
    """A ModelConfig of parsed JSON. Raises ConfigError where it is no JSON object."""
    if not isinstance(data, Mapping):
        raise ConfigError(f"{place}: a config.json holds one JSON object, this holds a {type(data).__name__}")
    text: Mapping[str, Any] = data
    for _ in range(3):
        nested = next((text[key] for key in _TEXT_CONFIGS if isinstance(text.get(key), Mapping)), None)
        if nested is None:
            break
        text = nested
    return ModelConfig(data, text, found_in, place)


def read_config(path: str, found_in: str = "config") -> ModelConfig:
    """The config at `path`: a config.json or a folder that holds one.

    Raises ConfigError where there is none, or it is no JSON, too large, or nested too deeply.
    """
    import json
    import os

    file = os.path.join(path, "config.json") if os.path.isdir(path) else path
    content = small_file(file, LARGEST_CONFIG, ConfigError, _ADVICE)
    try:
        data = json.loads(content)
    except json.JSONDecodeError as error:
        raise ConfigError(not_json(file, error, _ADVICE)) from None
    except RecursionError:
        raise ConfigError(f"{file}: nested too deeply for a config.json; {_ADVICE}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: not UTF-8 text (byte {error.start}); {_ADVICE}") from None
    except ValueError as error:
        raise ConfigError(f"{file}: {error}; {_ADVICE}") from None
    return config_from(data, found_in, file)
