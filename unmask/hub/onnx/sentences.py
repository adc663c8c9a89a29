"""Texts of many kinds and lengths that int8 is checked on, where a person gives none of their own."""

SENTENCES = (
    "Yes.",
    "The cat sleeps.",
    "Where is the nearest railway station?",
    "She sold the house in spring and moved to the coast.",
    "The committee will meet again on Tuesday to discuss the budget for the coming year.",
    "Add two spoons of sugar, stir until it is gone, and let the mixture cool for an hour.",
    "Water boils at a lower temperature in the mountains, because the pressure of the air is lower there.",
    "The function returns a list of strings, or raises an error when the file can't be opened.",
    "Shares of the company fell by 12.5 % on Monday after it had warned of lower profits.",
    "In 1969 two people walked on the Moon; a third one waited for them in orbit.",
    "Patients who had received the drug recovered faster, but the difference was not significant (p = 0.11).",
    "I would not recommend this hotel: the room was small, the street loud, and breakfast began at nine.",
    "Great value, arrived on time, works as described!!!",
    "def add(a, b):\n    return a + b",
    "According to the treaty, both states keep their fishing rights within twelve miles of the shore, while disputes about "
    "the waters beyond are to be settled by a court whose members are named for five years at a time.",
    "The old theatre was built of wood. It burned down twice in its first hundred years and was rebuilt both times by the "
    "people of the town, who carried the stones for its third walls from the river themselves. Today it has four hundred "
    "seats, a stage that turns, and a roof that the last storm damaged so badly that rain falls on the orchestra.",
    "A matrix is invertible if and only if its determinant is not zero. The inverse of a product is the product of the "
    "inverses in the opposite order, and the inverse of a transpose is the transpose of the inverse.",
    "Le chat dort sur le canapé pendant que la pluie tombe.",
    "Der Zug nach München fährt heute von Gleis sieben ab.",
    "La reunión se ha aplazado hasta el próximo miércoles.",
    "今天天气很好，我们去公园散步吧。",
    "北京是中国的首都，有三千多年的历史。",
    "Поезд прибывает на вторую платформу через десять минут.",
    "?!",
    "12345 67890 3.14159 2.71828",
    "Dear customer, thank you for your message. We have opened ticket 48213 and will answer within two working days.",
    "Bees dance to tell each other where flowers are: the angle of the dance gives the direction, its length the distance.",
    "The prime minister resigned after losing a vote of confidence by a single voice.",
    "Oil and water do not mix unless something holds them together, as the yolk of an egg does in mayonnaise.",
    "He ran the last kilometre in under three minutes and still came in fourth.",
    "Terms and conditions apply. See the back of the ticket for details.",
    "To be, or not to be, that is the question.",
)
