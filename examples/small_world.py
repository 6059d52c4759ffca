"""A small world of English text. One grammar makes stories without labels and labelled rows for the four traversals.

The world follows section 4 of "Improving Language Understanding by Generative Pre-Training" in miniature: what the
labelled rows ask for (which word praises, what kind of thing a plum is, what people do with a kite) can be learned
from the stories. The labelled training rows show only a quarter of these words. The same seed gives the same text.
"""

import random
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One kind of thing, and everything that is true of it in this world."""

    noun: str
    things: tuple[str, ...]
    needs: tuple[str, ...]  # how someone without it feels
    relief: tuple[str, ...]  # how someone feels after using it
    acts: tuple[str, ...]  # what people do with it, in words of the same meaning
    places: tuple[str, ...]  # where it is found


# The noun of each kind, then the fields of `Kind` in their order.
_KINDS = """
fruit: apple, pear, plum, peach, cherry, apricot, mango, melon;
    hungry, starving, famished; full, satisfied; ate, devoured; kitchen, orchard
drink: lemonade, cocoa, tea, coffee, juice, cider, milkshake, smoothie;
    thirsty, parched, dehydrated; refreshed, hydrated; drank, sipped; cellar, cafe
garment: coat, scarf, jumper, cloak, shawl, jacket, cardigan, sweater;
    cold, freezing, chilly; warm, cosy; wore, donned; hall, tailor shop
seat: armchair, sofa, bench, stool, hammock, rocker, throne, couch;
    tired, weary, exhausted; rested, relaxed; sat on, settled on; lounge, parlour
toy: ball, kite, puzzle, doll, yoyo, marble, puppet, balloon;
    bored, listless, idle; amused, entertained; played with, had fun with; attic, nursery
animal: puppy, kitten, parrot, rabbit, hamster, pony, lamb, duckling;
    lonely, alone, friendless; comforted, loved; stroked, petted; barn, meadow
flower: rose, tulip, daisy, lily, orchid, violet, poppy, daffodil;
    gloomy, glum, downcast; cheerful, merry; smelled, sniffed; garden, park
instrument: flute, violin, piano, guitar, trumpet, harp, cello, banjo;
    restless, nervous, jittery; calm, peaceful; practised on, performed on; studio, theatre
"""


def _read_kinds(text):
    kinds = []
    for noun, lists in re.findall(r"^(\w+): ([^:]+)$", text, flags=re.MULTILINE):
        fields = [tuple(re.split(r",\s+", words)) for words in re.split(r";\s+", lists.strip())]
        kinds.append(Kind(noun, *fields))
    return tuple(kinds)


KINDS = _read_kinds(_KINDS)

PRAISE = [
    "wonderful",
    "lovely",
    "splendid",
    "excellent",
    "marvellous",
    "superb",
    "great",
    "perfect",
    "delightful",
    "glorious",
    "brilliant",
    "fine",
]
BLAME = [
    "awful",
    "horrid",
    "terrible",
    "dreadful",
    "nasty",
    "dismal",
    "poor",
    "shabby",
    "ghastly",
    "useless",
    "lousy",
    "vile",
]
JOY_ACTS = ["smiled", "laughed", "cheered", "grinned", "danced", "giggled", "beamed", "chuckled"]
GRIEF_ACTS = ["frowned", "sighed", "wept", "groaned", "sulked", "complained", "cried", "grumbled"]
JOY_MOODS = ["happy", "glad", "pleased", "joyful", "delighted", "content", "thrilled", "jolly"]
GRIEF_MOODS = ["sad", "upset", "angry", "unhappy", "cross", "annoyed", "miserable", "furious"]
WOMEN = ["Anna", "Clara", "Emma", "Kate", "Mary", "Vera"]
MEN = ["Ben", "David", "Henry", "Leo", "Paul", "Tom"]
PEOPLE = WOMEN + MEN
THINGS = [(kind, thing) for kind in KINDS for thing in kind.things]
PLACES = [place for kind in KINDS for place in kind.places]

TAUGHT_SHARE = 4  # one word in four is shown in labelled training rows
# Where each fifth of the (person, thing) pairs occurs, so that no pair is in two of these texts.
MEETINGS = ("test", "train", "stories", "stories", "stories")


def meets_in(person, thing):
    """Where this person and this thing occur together: in "stories", or in the labelled rows of "train" or "test"."""
    position = [name for _, name in THINGS].index(thing)
    return MEETINGS[(PEOPLE.index(person) + position) % len(MEETINGS)]


def _a(noun):
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _she(person):
    return "she" if person in WOMEN else "he"


def _sentence(text):
    return text[0].upper() + text[1:] + "."


def _paragraph(*texts):
    return " ".join(map(_sentence, texts))


# ------------------------------------------------------------------------------------------------------------- stories


def stories(number, seed=0):
    """Return `number` stories, each a paragraph of three to seven sentences."""
    draw = random.Random(f"stories {seed}")
    plots = (_need_story, _need_story, _exchange_story, _request_story, _request_story, _retold_story, _visit_story)
    return [draw.choice(plots)(draw) for _ in range(number)]


def _free_thing(draw, *people, kind=None):
    while True:
        found, thing = draw.choice(THINGS)
        if kind in (None, found) and all(meets_in(person, thing) == "stories" for person in people):
            return found, thing


def _other_kind(draw, *kinds):
    return draw.choice([kind for kind in KINDS if kind not in kinds])


def _opinion(draw, person, good):
    she = _she(person)
    praise, acts, moods = (PRAISE, JOY_ACTS, JOY_MOODS) if good else (BLAME, GRIEF_ACTS, GRIEF_MOODS)
    first, second = draw.sample(praise, 2)
    looked = draw.choice(BLAME if good else PRAISE)
    verdict = draw.choice(
        [f"it was {first}", f"{person} found it {first} and {second}", f"it looked {looked}, but it was {first}"]
    )
    act = draw.choice(acts)
    mood = draw.choice(moods)
    effect = draw.choice(
        [f"{she} {act}", f"{she} was {mood}", f"it made {person} {mood}", f"{she} {act} and was {mood}"]
    )
    return verdict, effect


def _need_story(draw):
    """Someone needs something, gets it and uses it, and is seen to be clever or silly."""
    person = draw.choice(PEOPLE)
    she = _she(person)
    kind, thing = _free_thing(draw, person)
    need, same_need = draw.sample(kind.needs, 2)
    clever = draw.random() < 0.6
    used_as = kind if clever else _other_kind(draw, kind)
    opening = draw.choice(
        [f"one day {person} was {need}", f"{person} felt {need}", f"{person} was {need} and {same_need}"]
    )
    act = draw.choice(used_as.acts)
    use = draw.choice(
        [f"{she} {act} the {thing}", f"{she} {act} it", f"{she} {act} it and was {draw.choice(used_as.relief)}"]
    )
    remark = f"{'clever' if clever else 'silly'} {person}"
    relieved = draw.choice([f"now {she} was {draw.choice(kind.relief)}", f"{she} was no longer {same_need}"])
    end = relieved if clever else f"{she} was still {same_need}"
    return _paragraph(opening, *_discovery(draw, person, kind, thing), use, remark, end)


def _discovery(draw, person, kind, thing):
    """Two sentences that end with the thing in the person's hands."""
    she = _she(person)
    place = draw.choice(kind.places)
    friend = draw.choice([name for name in PEOPLE if name != person and meets_in(name, thing) == "stories"])
    given = draw.choice([f"{friend} gave {person} a box", f"{friend} had a box for {person}"])
    opened = draw.choice([f"{she} opened the box and found {_a(thing)}", f"in the box was {_a(thing)}"])
    opened += draw.choice(["", f", the best {kind.noun} of all", f", and {she} liked every {kind.noun}"])
    searched = draw.choice([f"{she} needed {_a(kind.noun)}", f"{she} looked for {_a(kind.noun)} in the {place}"])
    found = draw.choice([f"{she} found {_a(thing)} in the {place}", f"in the {place} there was {_a(thing)}"])
    return draw.choice([(given, opened), (searched, found)])


def _exchange_story(draw):
    """Two people each have one thing and give it away. The kind's noun then stands for the thing."""
    one, two = draw.sample(PEOPLE, 2)
    kind, thing = _free_thing(draw, one, two)
    other, other_thing = _free_thing(draw, one, two, kind=_other_kind(draw, kind))
    return _paragraph(
        f"{one} had {_a(thing)} and {two} had {_a(other_thing)}",
        draw.choice([f"{one} was {draw.choice(other.needs)}", f"{one} had no {other.noun}"]),
        f"so {two} gave {one} the {other.noun} and got the {kind.noun}",
        f"{one} {draw.choice(other.acts)} the {other_thing}",
        f"{two} {draw.choice(kind.acts)} the {thing}",
        f"{one} was {draw.choice(other.relief)} and {two} was {draw.choice(kind.relief)}",
    )


def _request_story(draw):
    """Someone wants a thing of some kind, or wants none of it, and is pleased or not with what the other has."""
    one, two = draw.sample(PEOPLE, 2)
    kind, thing = _free_thing(draw, one, two)
    same = draw.random() < 0.6
    wanted = draw.random() < 0.6
    asked_for = kind if same else _other_kind(draw, kind)
    acts, moods = (JOY_ACTS, JOY_MOODS) if same == wanted else (GRIEF_ACTS, GRIEF_MOODS)
    verb = draw.choice(["wanted", "liked", "asked for"])
    wish = f"{one} {verb} {_a(asked_for.noun) if wanted else 'no ' + asked_for.noun}"
    offer = f"{two} {draw.choice(['had', 'bought', 'found'])} {_a(thing)} in the {draw.choice(PLACES)}"
    answer = f"yes, that was {_a(kind.noun)}" if same else f"no, that was no {asked_for.noun}, but {_a(kind.noun)}"
    return _paragraph(
        *draw.sample([wish, offer], 2), answer, f"{one} {draw.choice(acts)} and was {draw.choice(moods)}"
    )


def _retold_story(draw):
    """Someone does something, and another person tells it in other words."""
    one, two = draw.sample(PEOPLE, 2)
    kind, thing = _free_thing(draw, one, two)
    place = draw.choice([*kind.places, draw.choice(PLACES)])
    first = draw.choice(kind.acts)
    second = draw.choice(kind.acts)
    told = f"{one} {second} the {draw.choice([thing, thing, kind.noun])} in the {place}"
    return _paragraph(
        f"{one} {first} the {thing} in the {place}",
        f"{two} told it: {told}",
        *_opinion(draw, one, draw.random() < 0.5),
    )


def _visit_story(draw):
    """Someone visits a place and sees what is there and what is not."""
    person = draw.choice(PEOPLE)
    she = _she(person)
    kind, thing = _free_thing(draw, person)
    _, second = _free_thing(draw, person, kind=kind)
    place = draw.choice(kind.places)
    return _paragraph(
        f"{person} went to the {place}",
        f"there was {_a(thing)} and {_a(second)}, but no {_other_kind(draw, kind).noun}",
        f"{person} bought the {thing}, for {she} liked every {kind.noun}",
        *_opinion(draw, person, draw.random() < 0.5),
        draw.choice([f"{she} {draw.choice(kind.acts)} it at home", f"{person} was {draw.choice(kind.relief)}"]),
    )


# ------------------------------------------------------------------------------------------------------- labelled rows


def labelled(traversal, split, number, seed=0):
    """Return `number` different rows (dictionaries with a `label`) of one traversal.

    Training rows draw from the taught quarter of the words, test rows from all words. No row occurs in the stories,
    and no test row is a training row.
    """
    draw = random.Random(f"{traversal} {split} {seed}")
    make = {
        "classification": _review,
        "entailment": _inference,
        "similarity": _graded_pair,
        "multiple_choice": _cloze,
    }[traversal]
    rows, seen = [], set()
    while len(rows) < number:
        row = make(draw, taught=split == "train")
        if str(row) not in seen:
            rows.append(row)
            seen.add(str(row))
    return rows


def _some(words, taught):
    return words[: len(words) // TAUGHT_SHARE] if taught else words


def _labelled_pair(draw, taught):
    while True:
        person = draw.choice(PEOPLE)
        kind = draw.choice(KINDS)
        thing = draw.choice(_some(kind.things, taught))
        if meets_in(person, thing) == ("train" if taught else "test"):
            return person, kind, thing


def _review(draw, taught):
    """Classification: does the last word about a thing praise it (1) or not (0)?"""
    person, kind, thing = _labelled_pair(draw, taught)
    she = _she(person)
    good = draw.randrange(2)
    words, acts, moods = (PRAISE, JOY_ACTS, JOY_MOODS) if good else (BLAME, GRIEF_ACTS, GRIEF_MOODS)
    opposite = draw.choice(_some(BLAME if good else PRAISE, taught))
    word = draw.choice(_some(words, taught))
    verdict = draw.choice(
        [
            f"{person} found the {thing} {word}",
            f"{she} {draw.choice(_some(acts, taught))}",
            f"it made {person} {draw.choice(_some(moods, taught))}",
            f"it looked {opposite}, but {person} found it {word}",
        ]
    )
    return {"text": f"{_sentence(f'{person} got {_a(thing)}')} {_sentence(verdict)}", "label": good}


ENTAILMENT_LABELS = ("entailment", "neutral", "contradiction")


def _inference(draw, taught):
    """Entailment: does the second sentence follow from the first (0), not follow (1) or deny it (2)?"""
    label = draw.randrange(3)
    person, kind, thing = _labelled_pair(draw, taught)
    place = draw.choice(kind.places)
    about = kind if label != 1 else _other_kind(draw, kind)
    denied = label == 2 or (label == 1 and draw.random() < 0.5)
    verb = draw.choice(["had", "bought", "found"])
    return {
        "premise": _sentence(f"{person} {verb} {_a(thing)} in the {draw.choice([place, draw.choice(PLACES)])}"),
        "hypothesis": _sentence(f"{person} {verb} {'no ' + about.noun if denied else _a(about.noun)}"),
        "label": label,
    }


def _graded_pair(draw, taught):
    """Similarity: 5 for one meaning; 1 less for another person or place, 1.5 for another thing, 3 for another kind."""
    person, kind, thing = _labelled_pair(draw, taught)
    place = draw.choice(kind.places)
    score = 5.0
    person_b = person
    kind_b = kind
    thing_b = thing
    place_b = place
    change = draw.choice(["nothing", "thing", "kind"])
    if change == "kind":
        kind_b = _other_kind(draw, kind)
        thing_b = draw.choice(_some(kind_b.things, taught))
        score -= 3.0
    elif change == "thing":
        thing_b = draw.choice([word for word in _some(kind.things, taught) if word != thing])
        score -= 1.5
    if draw.random() < 0.3:
        person_b = draw.choice([name for name in PEOPLE if name != person])
        score -= 1.0
    if draw.random() < 0.3:
        place_b = draw.choice([name for name in PLACES if name != place])
        score -= 1.0
    return {
        "text_a": _sentence(f"{person} {draw.choice(kind.acts)} the {thing} in the {place}"),
        "text_b": _sentence(f"{person_b} {draw.choice(kind_b.acts)} the {thing_b} in the {place_b}"),
        "label": score,
    }


def _cloze(draw, taught):
    """Multiple choice: four sentences and two to four endings, one of which fits the thing."""
    person, kind, thing = _labelled_pair(draw, taught)
    she = _she(person)
    kinds = [kind, *draw.sample([other for other in KINDS if other != kind], draw.choice([1, 2, 3]))]
    draw.shuffle(kinds)
    friend = draw.choice([name for name in PEOPLE if name != person])
    context = (
        draw.choice([f"{person} went to the {draw.choice(PLACES)}", f"one day {person} was at home"]),
        draw.choice([f"{friend} gave {person} a box", f"{friend} had a box for {person}"]),
        draw.choice([f"{she} liked it", f"{person} opened the box"]),
        draw.choice([f"in the box was {_a(thing)}", f"{she} found {_a(thing)}"]),
    )
    endings = [f"{she} {draw.choice(choice.acts)} it and was {draw.choice(choice.relief)}" for choice in kinds]
    return {
        "context": [_sentence(part) for part in context],
        "choices": [_sentence(ending) for ending in endings],
        "label": kinds.index(kind),
    }
