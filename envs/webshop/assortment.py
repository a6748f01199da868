"""The word lists of our own shop. Brands are invented; the names of two things share no word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BRANDS = (
    "Arvadon",
    "Belcraw",
    "Corvish",
    "Dunvarr",
    "Elmwyre",
    "Fernoly",
    "Glanmoor",
    "Harvend",
    "Istrova",
    "Jorvane",
    "Kestrill",
    "Lumbray",
    "Morwick",
    "Norvalt",
    "Ombrell",
    "Pelwyn",
)
COLORS = ("black", "white", "gray", "red", "navy", "olive", "teal", "beige", "purple", "pink", "yellow", "brown")

OPTIONS: Mapping[str, tuple[str, ...]] = {
    "color": COLORS,
    "clothes": ("small", "medium", "large", "x-large"),
    "shoes": ("6", "7", "8", "9", "10", "11"),
    "beds": ("twin", "full", "queen", "king"),
    "bottles": ("travel", "regular", "family"),
    "flavor": ("vanilla", "caramel", "lemon", "mint", "cinnamon", "honey", "ginger", "smoked"),
    "scent": ("lavender", "citrus", "sandalwood", "rose", "coconut", "jasmine"),
}
"""Possible values of each kind of option."""
OPTION_NAMES: Mapping[str, str] = {"clothes": "size", "shoes": "size", "beds": "size", "bottles": "size"}
"""Displayed name of a kind where it differs from the kind."""
VALUES_OFFERED = 4
"""Maximum number of values that a product offers of one option."""


@dataclass(frozen=True)
class Department:
    """Products sold together: the same attributes, options and prices make sense for all of them."""

    name: str
    groups: Mapping[str, tuple[str, ...]]
    """The products of each group."""
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    """Keys of `OPTIONS`."""
    prices: tuple[int, int]
    """Lowest and highest price, in dollars."""
    notes: tuple[str, ...]
    """Sentences of which the description uses one."""


DEPARTMENTS = (
    Department(
        "fashion",
        {
            "outerwear": ("raincoat", "parka", "windbreaker"),
            "tops": ("hoodie", "blouse", "cardigan"),
            "bottoms": ("jeans", "leggings", "skirt"),
        },
        (
            "waterproof",
            "breathable",
            "machine washable",
            "slim fit",
            "stretchy",
            "quick drying",
            "fleece lined",
            "lightweight",
            "organic cotton",
            "wrinkle free",
        ),
        ("color", "clothes"),
        (14, 95),
        ("Sized generously.", "Made for every day of the year."),
    ),
    Department(
        "footwear",
        {"everyday": ("sneakers", "loafers"), "seasonal": ("sandals", "boots"), "indoor": ("slippers", "clogs")},
        (
            "non slip",
            "memory foam",
            "arch support",
            "wide toe",
            "vegan leather",
            "shock absorbing",
            "rubber sole",
            "hand stitched",
            "ankle high",
            "anti odor",
        ),
        ("color", "shoes"),
        (18, 120),
        ("Comes in a plain box.", "True to size."),
    ),
    Department(
        "kitchen",
        {
            "cookware": ("skillet", "saucepan", "wok"),
            "drinkware": ("mug", "tumbler", "teapot"),
            "tools": ("colander", "spatula", "ladle"),
        },
        (
            "dishwasher safe",
            "non stick",
            "stainless steel",
            "bpa free",
            "heat resistant",
            "double walled",
            "leak proof",
            "hand painted",
            "cast iron",
            "induction ready",
        ),
        ("color",),
        (8, 78),
        ("A present for anyone who likes to cook.", "Takes little room in a cupboard."),
    ),
    Department(
        "bedroom",
        {"covers": ("quilt", "duvet", "coverlet"), "bases": ("mattress", "pillowcase", "bedspread")},
        (
            "hypoallergenic",
            "cooling",
            "moisture wicking",
            "down filled",
            "reversible",
            "stain repellent",
            "sustainably made",
            "extra soft",
            "deep pocket",
            "fade proof",
        ),
        ("color", "beds"),
        (22, 180),
        ("Arrives rolled up.", "Goes well with any wall."),
    ),
    Department(
        "furniture",
        {
            "seating": ("armchair", "barstool", "ottoman"),
            "storage": ("bookshelf", "nightstand", "wardrobe"),
            "surfaces": ("desk", "sideboard"),
        },
        (
            "solid wood",
            "easy assembly",
            "space saving",
            "mid century",
            "scratch resistant",
            "foldable",
            "high density",
            "metal frame",
            "faux leather",
            "height adjustable",
        ),
        ("color",),
        (35, 260),
        ("Delivered to the door.", "All screws are in the bag."),
    ),
    Department(
        "electronics",
        {
            "sound": ("earbuds", "headphones", "speaker"),
            "office": ("keyboard", "webcam", "trackball"),
            "power": ("charger", "powerbank"),
        },
        (
            "wireless",
            "fast charging",
            "noise cancelling",
            "usb powered",
            "plug and play",
            "hands free",
            "long battery life",
            "touch control",
            "tangle free",
            "high resolution",
        ),
        ("color",),
        (12, 150),
        ("The manual is short.", "Works out of the box."),
    ),
    Department(
        "beauty",
        {
            "skin": ("moisturizer", "sunscreen", "cleanser"),
            "hair": ("shampoo", "conditioner", "pomade"),
            "body": ("deodorant", "soap"),
        },
        (
            "cruelty free",
            "paraben free",
            "sulfate free",
            "alcohol free",
            "dermatologist tested",
            "long lasting",
            "oil free",
            "natural ingredients",
            "sensitive skin",
            "anti aging",
        ),
        ("scent", "bottles"),
        (5, 48),
        ("Keep away from sunlight.", "Use within a year."),
    ),
    Department(
        "grocery",
        {
            "snacks": ("granola", "popcorn", "jerky"),
            "sweets": ("chocolate", "cookies", "fudge"),
            "drinks": ("coffee", "cocoa"),
        },
        (
            "gluten free",
            "sugar free",
            "non gmo",
            "low sodium",
            "keto friendly",
            "plant based",
            "high protein",
            "fair trade",
            "dairy free",
            "kosher certified",
        ),
        ("flavor",),
        (4, 38),
        ("Store in a dry place.", "Packed in small batches."),
    ),
    Department(
        "outdoors",
        {
            "camping": ("tent", "hammock", "lantern"),
            "carrying": ("backpack", "cooler", "duffel"),
            "sight": ("binoculars", "monocular"),
        },
        (
            "rust proof",
            "uv protected",
            "ripstop fabric",
            "compact",
            "rechargeable",
            "quick release",
            "padded straps",
            "four season",
            "insulated",
            "floating",
        ),
        ("color",),
        (16, 190),
        ("Tested in the hills.", "Comes with a carrying bag."),
    ),
    Department(
        "pets",
        {"walking": ("leash", "harness", "muzzle"), "home": ("kennel", "scratcher", "litterbox")},
        (
            "bite proof",
            "reflective",
            "escape proof",
            "odor locking",
            "non toxic",
            "orthopedic",
            "easy clean",
            "elevated",
            "soft padding",
            "double stitched",
        ),
        ("color", "clothes"),
        (9, 85),
        ("Animals took to it at once.", "Wipe with a damp cloth."),
    ),
)
